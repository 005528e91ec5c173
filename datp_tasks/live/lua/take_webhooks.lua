--[[
Hand out webhooks of an owner that are due. Each stays on the schedule, for later: should the
sender that takes it die, it is due again then. If the owner has more that is due, it goes behind
all owners that have waited until now.

KEYS:
  webhooks     zset  notifications of the owner by the time of their next attempt
  owners       zset  owners by when they are due and have their turn
ARGV:
  now_ms       int   time, or empty for the server's
  owner        str   whose they are
  batch_max    int   how many at most
  hold_ms      int   when they are due again
Returns:
  OK           the notifications, "<transaction>:<sequence>"
]]
--- @include "clock"
local webhooks = KEYS[1]
local owners = KEYS[2]
local now_ms = ARGV[1]
local owner = ARGV[2]
local batch_max = tonumber(ARGV[3])
local hold_ms = tonumber(ARGV[4])

local now = clock(now_ms)
local due = redis.call('ZRANGEBYSCORE', webhooks, '-inf', now, 'LIMIT', 0, batch_max)
for _, member in ipairs(due) do
  redis.call('ZADD', webhooks, now + hold_ms, member)
end
local first = redis.call('ZRANGE', webhooks, 0, 0, 'WITHSCORES')
if first[2] then
  redis.call('ZADD', owners, math.max(now, tonumber(first[2])), owner)
else
  redis.call('ZREM', owners, owner)
end
return {'OK', due}
