--[[
Set a switch of a transaction, and queue the transaction if it sleeps until that switch is set.

Moves:
  sleeping -> queued
KEYS:
  state        hash  the transaction
  queued       zset  transactions by time queued
  sleeping     zset  transactions by wake time
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  name         str   of the switch
  value        json  a boolean, number or short string; empty removes the switch
  switches_max int   how many different switches a transaction may have
  fence        int   of the claim, if one of its own steps sets it; empty from outside
  seen         str   "<status>:<fence>" that it must have, or empty for any
Returns:
  SET          switch sequence
  WOKEN        bell
  NO_CHANGE    it had that value already
  TOO_MANY     number of switches
  STALE        status found; another worker owns it
  MOVED        status found; it is not as it was seen any more
  FINAL        status found
  UNKNOWN      no such transaction here
]]
--- @include "clock"
--- @include "ended"
--- @include "following"
--- @include "journal"
--- @include "enqueue"
--- @include "stir"
--- @include "bell"
local state = KEYS[1]
local queued = KEYS[2]
local sleeping = KEYS[3]
local to_archive = KEYS[4]
local stream = KEYS[5]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local name = ARGV[3]
local value = ARGV[4]
local switches_max = tonumber(ARGV[5])
local fence = ARGV[6]
local seen = ARGV[7]

local field = 'switch:' .. name
local found = redis.call('HMGET', state, 'status', field, 'wakeSwitch', 'switchCount',
  'version', 'fence')
local status = found[1]
if not status then
  return {'UNKNOWN', ''}
end
if seen ~= '' and seen ~= status .. ':' .. found[6] then
  return {'MOVED', status}
end
if ended(status) then
  return {'FINAL', status}
end
if fence ~= '' and (status ~= 'running' or found[6] ~= fence) then
  return {'STALE', status}
end
local before = found[2] and string.match(found[2], '^%d+:(.*)$') or ''
if before == value then
  return {'NO_CHANGE', ''}
end
local switches = tonumber(found[4] or '0')
if not found[2] then
  if switches >= switches_max then
    return {'TOO_MANY', switches}
  end
  redis.call('HSET', state, 'switchCount', switches + 1)
end
local sequence = redis.call('HINCRBY', state, 'switchSeq', 1)
local now = clock(now_ms)
local version = following(found[5], now)
local wakes = status == 'sleeping' and found[3] == name
redis.call('HSET', state, field, sequence .. ':' .. value, 'version', version)
journal(stream, tx_id, version, found[5], found[6], wakes and 'switch-wake' or 'switch', '',
  name .. '=' .. sequence .. ':' .. value)
if not wakes then
  if status == 'sleeping' then
    redis.call('PERSIST', state)
    redis.call('ZADD', to_archive, now, tx_id)
  end
  return {'SET', sequence}
end
stir(state, sleeping, to_archive, tx_id, version)
enqueue(state, queued, tx_id, now)
return {'WOKEN', bell(state)}
