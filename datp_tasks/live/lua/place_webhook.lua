--[[
Put a webhook on the schedule of its owner, move it, or take it off: what SQL says is due, and
when.

KEYS:
  webhooks     zset  notifications of the owner by the time of their next attempt
  owners       zset  owners by when they are due and have their turn
ARGV:
  now_ms       int   time, or empty for the server's
  owner        str   whose it is
  member       str   "<transaction>:<sequence>"
  wait_ms      int   how long from now; empty takes it off
  only_new     int   1 leaves one alone that is there already
Returns:
  OK           nothing more
]]
--- @include "clock"
local webhooks = KEYS[1]
local owners = KEYS[2]
local now_ms = ARGV[1]
local owner = ARGV[2]
local member = ARGV[3]
local wait_ms = ARGV[4]
local only_new = tonumber(ARGV[5])

if wait_ms == '' then
  redis.call('ZREM', webhooks, member)
  return {'OK', ''}
end
local due = clock(now_ms) + tonumber(wait_ms)
if only_new == 1 then
  redis.call('ZADD', webhooks, 'NX', due, member)
else
  redis.call('ZADD', webhooks, due, member)
end
redis.call('ZADD', owners, 'LT', due, owner)
return {'OK', ''}
