--[[
Recall a transaction: its client takes it back, or its time is over. If no step has begun, the
caller gets it at once and must finish it; otherwise a worker rolls it back at its next step,
wake-up or claim.

Moves:
  queued -> running
  sleeping -> running
  sleeping -> queued
KEYS:
  state        hash  the transaction
  queued       zset  transactions by time queued
  processing   zset  transactions by claim time
  running      set   transactions of the caller
  sleeping     zset  transactions by wake time
  to_archive   zset  transactions by the time they may be archived
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  reason       str   how it must end, and why; not empty
  node         str   the caller
  only_seize   int   1 to leave it alone if it runs or a step has begun
Returns:
  SEIZED       fence, fields; nothing had begun: finish it now
  QUEUED       bell; a worker will roll it back
  ASKED        status found; a worker will see it
  BEGUN        status found; nothing was changed
  PARKED       it is in doubt; that must be resolved first
  FINAL        status found
  UNKNOWN      no such transaction here
]]
--- @include "clock"
--- @include "integer"
--- @include "ended"
--- @include "next_fence"
--- @include "fields_of"
--- @include "enqueue"
--- @include "bell"
local state = KEYS[1]
local queued = KEYS[2]
local processing = KEYS[3]
local running = KEYS[4]
local sleeping = KEYS[5]
local to_archive = KEYS[6]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local reason = ARGV[3]
local node = ARGV[4]
local only_seize = ARGV[5]

local found = redis.call('HMGET', state, 'status', 'begun', 'fence')
local status = found[1]
if not status then
  return {'UNKNOWN', ''}
end
if status == 'in-doubt' then
  return {'PARKED', ''}
end
if ended(status) then
  return {'FINAL', status}
end
if only_seize == '1' and (status == 'running' or found[2] == '1') then
  return {'BEGUN', status}
end
redis.call('HSETNX', state, 'cancel', reason)
if status == 'running' then
  return {'ASKED', status}
end
local now = clock(now_ms)
if found[2] ~= '1' then
  local fence = integer(next_fence(found[3], now))
  redis.call('HSET', state, 'status', 'running', 'fence', fence, 'node', node)
  redis.call('HDEL', state, 'wakeTime', 'wakeSwitch', 'problem')
  redis.call('ZREM', queued, tx_id)
  redis.call('ZREM', sleeping, tx_id)
  redis.call('ZREM', to_archive, tx_id)
  redis.call('ZADD', processing, now, tx_id)
  redis.call('SADD', running, tx_id)
  return {'SEIZED', fence, fields_of(state, false)}
end
if status == 'queued' then
  return {'ASKED', status}
end
redis.call('ZREM', sleeping, tx_id)
redis.call('ZREM', to_archive, tx_id)
redis.call('HSET', state, 'priority', 'out')
enqueue(state, queued, tx_id, now)
return {'QUEUED', bell(state)}
