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
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  fence        int   of the claim
  channel      str   where to tell about it
  count        int   number of deltas in the JSON since the last script
  json         json  the whole state
  fields       pairs names and values of the hash
Returns:
  OK           version
  STALE        status found; another worker owns it
]]
--- @include "clock"
--- @include "holds"
--- @include "write_state"
local state = KEYS[1]
local deltas = KEYS[2]
local processing = KEYS[3]
local running = KEYS[4]
local exception = KEYS[5]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local channel = ARGV[4]
local count = tonumber(ARGV[5])
local json = ARGV[6]
local fields = 7

local held, found, version = holds(state, fence, 'version')
if not held then
  return {'STALE', found}
end
version = version + count
write_state(state, deltas, json, version, 'status', 'in-doubt', unpack(ARGV, fields, #ARGV))
redis.call('HDEL', state, 'node')
redis.call('ZREM', processing, tx_id)
redis.call('SREM', running, tx_id)
redis.call('ZADD', exception, clock(now_ms), tx_id)
redis.call('PUBLISH', channel, 'parked:' .. tx_id .. ':in-doubt')
return {'OK', version}
