--[[
End a hop by queueing the transaction: for another node group, a message of its own, a return to
the parent pipeline, or because a stuck neighbour holds it up.

Moves:
  running -> queued
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  queued       zset  transactions by time queued
  processing   zset  transactions by claim time
  running      set   transactions of this node
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  fence        int   of the claim
  snapshot     int   1 to have SQL get a copy of the state soon
  lines        json  the deltas in the JSON since the last script, one a line
  json         json  the whole state
  fields       pairs names and values of the hash
Returns:
  OK           sequence, version
  STALE        status found; another worker owns it
]]
--- @include "clock"
--- @include "holds"
--- @include "write_state"
--- @include "enqueue"
--- @include "following"
--- @include "journal"
local state = KEYS[1]
local deltas = KEYS[2]
local queued = KEYS[3]
local processing = KEYS[4]
local running = KEYS[5]
local to_archive = KEYS[6]
local stream = KEYS[7]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local snapshot = ARGV[4]
local lines = ARGV[5]
local json = ARGV[6]
local fields = 7

local held, found, before = holds(state, fence, 'version')
if not held then
  return {'STALE', found}
end
local now = clock(now_ms)
local version = following(before, now)
write_state(state, deltas, json, version, unpack(ARGV, fields, #ARGV))
redis.call('ZREM', processing, tx_id)
redis.call('SREM', running, tx_id)
if snapshot == '1' then
  redis.call('ZADD', to_archive, now, tx_id)
end
journal(stream, tx_id, version, before, fence, 'queue', lines, '')
return {'OK', enqueue(state, queued, tx_id, now), version}
