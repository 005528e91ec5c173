--[[
Park a running transaction whose next move only a person or a later probe can decide.

Moves:
  running -> in-doubt
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  processing   zset  transactions by claim time
  running      set   transactions of this node
  exception    zset  transactions in doubt
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  fence        int   of the claim
  channel      str   where to tell about it
  problem      str   why it is parked, for people
  lines        json  the deltas in the JSON since the last script, one a line
  json         json  the whole state
Returns:
  OK           version
  STALE        status found; another worker owns it
]]
--- @include "clock"
--- @include "holds"
--- @include "write_state"
--- @include "following"
--- @include "journal"
local state = KEYS[1]
local deltas = KEYS[2]
local processing = KEYS[3]
local running = KEYS[4]
local exception = KEYS[5]
local to_archive = KEYS[6]
local stream = KEYS[7]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local channel = ARGV[4]
local problem = ARGV[5]
local lines = ARGV[6]
local json = ARGV[7]

local held, found, before = holds(state, fence, 'version')
if not held then
  return {'STALE', found}
end
local now = clock(now_ms)
local version = following(before, now)
write_state(state, deltas, json, version, 'status', 'in-doubt', 'problem', problem)
redis.call('HDEL', state, 'node')
redis.call('ZREM', processing, tx_id)
redis.call('SREM', running, tx_id)
redis.call('ZADD', exception, now, tx_id)
redis.call('ZADD', to_archive, now, tx_id)
journal(stream, tx_id, version, before, fence, 'park', lines, problem)
redis.call('PUBLISH', channel, 'parked:' .. tx_id .. ':in-doubt')
return {'OK', version}
