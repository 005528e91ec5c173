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
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  fence        int   of the claim
  count        int   number of deltas in the JSON since the last script
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
local state = KEYS[1]
local deltas = KEYS[2]
local queued = KEYS[3]
local processing = KEYS[4]
local running = KEYS[5]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local count = tonumber(ARGV[4])
local json = ARGV[5]
local fields = 6

local held, found, version = holds(state, fence, 'version')
if not held then
  return {'STALE', found}
end
version = version + count
write_state(state, deltas, json, version, unpack(ARGV, fields, #ARGV))
redis.call('ZREM', processing, tx_id)
redis.call('SREM', running, tx_id)
return {'OK', enqueue(state, queued, tx_id, clock(now_ms)), version}
