--[[
Hand out webhooks that are due. Each stays on the schedule, for later: should the sender that
takes it die, it is due again then.

KEYS:
  webhooks     zset  notifications by the time of their next attempt
ARGV:
  now_ms       int   time, or empty for the server's
  batch_max    int   how many at most
  hold_ms      int   when they are due again
Returns:
  OK           the notifications, "<transaction>:<sequence>"
]]
--- @include "clock"
local webhooks = KEYS[1]
local now_ms = ARGV[1]
local batch_max = tonumber(ARGV[2])
local hold_ms = tonumber(ARGV[3])

local now = clock(now_ms)
local due = redis.call('ZRANGEBYSCORE', webhooks, '-inf', now, 'LIMIT', 0, batch_max)
for _, member in ipairs(due) do
  redis.call('ZADD', webhooks, now + hold_ms, member)
end
return {'OK', due}
