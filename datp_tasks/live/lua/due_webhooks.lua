--[[
Tell which owners have webhooks that are due in this shard, the one that was served longest ago
first.

KEYS:
  owners       zset  owners by when they are due and have their turn
ARGV:
  now_ms       int   time, or empty for the server's
  owners_max   int   how many at most
Returns:
  OK           the owners
]]
--- @include "clock"
local owners = KEYS[1]
local now_ms = ARGV[1]
local owners_max = ARGV[2]

return {'OK', redis.call('ZRANGEBYSCORE', owners, '-inf', clock(now_ms), 'LIMIT', 0, owners_max)}
