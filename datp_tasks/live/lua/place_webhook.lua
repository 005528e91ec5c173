--[[
Put a webhook on the schedule, move it, or take it off: what SQL says is due, and when.

KEYS:
  webhooks     zset  notifications by the time of their next attempt
ARGV:
  now_ms       int   time, or empty for the server's
  member       str   "<transaction>:<sequence>"
  wait_ms      int   how long from now; empty takes it off
  only_new     int   1 leaves one alone that is there already
Returns:
  OK           nothing more
]]
--- @include "clock"
local webhooks = KEYS[1]
local now_ms = ARGV[1]
local member = ARGV[2]
local wait_ms = ARGV[3]
local only_new = tonumber(ARGV[4])

if wait_ms == '' then
  redis.call('ZREM', webhooks, member)
elseif only_new == 1 then
  redis.call('ZADD', webhooks, 'NX', clock(now_ms) + tonumber(wait_ms), member)
else
  redis.call('ZADD', webhooks, clock(now_ms) + tonumber(wait_ms), member)
end
return {'OK', ''}
