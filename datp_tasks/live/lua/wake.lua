--[[
Queue a sleeping transaction: because its time has come, or because a client says so.

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
  only_due     int   1 to wake it only if its time has come
  seen         str   "<status>:<fence>" that it must have, or empty for any
Returns:
  OK           bell
  MOVED        status found; it is not as it was seen any more
  NOT_DUE      wake time
  NOT_SLEEPING status found
  UNKNOWN      no such transaction here; if it sleeps, it must be brought back first
]]
--- @include "clock"
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
local only_due = ARGV[3]
local seen = ARGV[4]

local found = redis.call('HMGET', state, 'status', 'wakeTime', 'version', 'fence')
if not found[1] then
  return {'UNKNOWN', ''}
end
if seen ~= '' and seen ~= found[1] .. ':' .. found[4] then
  return {'MOVED', found[1]}
end
if found[1] ~= 'sleeping' then
  redis.call('ZREM', sleeping, tx_id)
  return {'NOT_SLEEPING', found[1]}
end
local now = clock(now_ms)
if only_due == '1' and tonumber(found[2]) > now then
  return {'NOT_DUE', found[2]}
end
local version = following(found[3], now)
journal(stream, tx_id, version, found[3], found[4], 'wake', '', '')
stir(state, sleeping, to_archive, tx_id, version)
enqueue(state, queued, tx_id, now)
return {'OK', bell(state)}
