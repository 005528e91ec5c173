--[[
Tell what bell a queued transaction needs, and move it to the end of the line of those that
wait for one: its last bell may have been lost, so that one more is worth its cost. Since when it
waits is kept in the field `rung`, under its sequence, so that it means nothing once queued anew.

Moves:
  queued -> queued
KEYS:
  state        hash  the transaction
  queued       zset  transactions by time queued
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
Returns:
  OK           bell
  NOT_QUEUED   status found, or UNKNOWN
]]
--- @include "clock"
--- @include "bell"
local state = KEYS[1]
local queued = KEYS[2]
local now_ms = ARGV[1]
local tx_id = ARGV[2]

local status = redis.call('HGET', state, 'status')
if status ~= 'queued' then
  redis.call('ZREM', queued, tx_id)
  return {'NOT_QUEUED', status or 'UNKNOWN'}
end
local sequence, rung = unpack(redis.call('HMGET', state, 'sequence', 'rung'))
if string.match(rung or '', '^%d+') ~= sequence then
  local since = redis.call('ZSCORE', queued, tx_id) or clock(now_ms)
  redis.call('HSET', state, 'rung', sequence .. ':' .. since)
end
redis.call('ZADD', queued, clock(now_ms), tx_id)
return {'OK', bell(state)}
