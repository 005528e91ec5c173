--[[
Queue a sleeping transaction: because its time has come, or because somebody says so.

Moves:
  sleeping -> queued
KEYS:
  state        hash  the transaction
  queued       zset  transactions by time queued
  sleeping     zset  transactions by wake time
  to_archive   zset  transactions by the time they may be archived
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  only_due     int   1 to wake it only if its time has come
Returns:
  OK           bell
  NOT_DUE      wake time
  NOT_SLEEPING status found
  UNKNOWN      no such transaction here
]]
--- @include "clock"
--- @include "enqueue"
--- @include "bell"
local state = KEYS[1]
local queued = KEYS[2]
local sleeping = KEYS[3]
local to_archive = KEYS[4]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local only_due = ARGV[3]

local found = redis.call('HMGET', state, 'status', 'wakeTime')
if not found[1] then
  redis.call('ZREM', sleeping, tx_id)
  return {'UNKNOWN', ''}
end
if found[1] ~= 'sleeping' then
  redis.call('ZREM', sleeping, tx_id)
  return {'NOT_SLEEPING', found[1]}
end
local now = clock(now_ms)
if only_due == '1' and tonumber(found[2]) > now then
  return {'NOT_DUE', found[2]}
end
redis.call('ZREM', sleeping, tx_id)
redis.call('ZREM', to_archive, tx_id)
redis.call('HSET', state, 'priority', 'out')
enqueue(state, queued, tx_id, now)
return {'OK', bell(state)}
