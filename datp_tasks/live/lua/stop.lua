--[[
Stop a transaction: its client cancels it, or it has expired. If no step has begun, the caller
gets it at once and must finish it; otherwise a worker rolls it back at its next step, wake-up or
claim. One that Redis had lost may have begun: it is seized without a request, to be parked.

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
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  request      str   "<status to end as>:<reason>"; not empty
  node         str   the caller
  only_seize   int   1 to leave it alone if it runs or a step has begun
  seen         str   "<status>:<fence>" that it must have, or empty for any
Returns:
  SEIZED       fence, fields; nothing had begun: finish it now, or park it if it was recreated
  QUEUED       bell; a worker will roll it back
  ASKED        status found; a worker will see it
  BEGUN        status found; nothing was changed
  MOVED        status found; it is not as it was seen any more
  PARKED       it is in doubt; that must be resolved first
  FINAL        status found
  UNKNOWN      no such transaction here
]]
--- @include "clock"
--- @include "ended"
--- @include "following"
--- @include "journal"
--- @include "fields_of"
--- @include "enqueue"
--- @include "stir"
--- @include "bell"
local state = KEYS[1]
local queued = KEYS[2]
local processing = KEYS[3]
local running = KEYS[4]
local sleeping = KEYS[5]
local to_archive = KEYS[6]
local stream = KEYS[7]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local request = ARGV[3]
local node = ARGV[4]
local only_seize = ARGV[5]
local seen = ARGV[6]

local found = redis.call('HMGET', state, 'status', 'begun', 'fence', 'version', 'cancel',
  'recreated')
local status = found[1]
if not status then return {'UNKNOWN', ''} end
if seen ~= '' and seen ~= status .. ':' .. found[3] then return {'MOVED', status} end
if status == 'in-doubt' then return {'PARKED', ''} end
if ended(status) then return {'FINAL', status} end
if only_seize == '1' and (status == 'running' or found[2] == '1') then
  return {'BEGUN', status}
end
local now = clock(now_ms)
local version = following(found[4], now)
local begun = found[2] == '1'
if status == 'running' or (status == 'queued' and begun) then
  if not found[5] then
    redis.call('HSET', state, 'cancel', request, 'version', version)
    journal(stream, tx_id, version, found[4], found[3], 'cancel', '', request)
  end
  return {'ASKED', status}
end
request = found[5] or request
redis.call('PERSIST', state)
if not begun then
  local fence = following(found[3], now)
  journal(stream, tx_id, version, found[4], fence, found[6] and 'claim' or 'seize', '', request)
  redis.call('HSET', state, 'status', 'running', 'fence', fence, 'node', node, 'version', version)
  if not found[6] then
    redis.call('HSET', state, 'cancel', request)
  end
  redis.call('HDEL', state, 'wakeTime', 'wakeSwitch', 'problem')
  redis.call('ZREM', queued, tx_id)
  redis.call('ZREM', sleeping, tx_id)
  redis.call('ZREM', to_archive, tx_id)
  redis.call('ZADD', processing, now, tx_id)
  redis.call('SADD', running, tx_id)
  return {'SEIZED', fence, fields_of(state, false)}
end
redis.call('HSET', state, 'cancel', request)
journal(stream, tx_id, version, found[4], found[3], 'cancel-wake', '', request)
stir(state, sleeping, to_archive, tx_id, version)
enqueue(state, queued, tx_id, now)
return {'QUEUED', bell(state)}
