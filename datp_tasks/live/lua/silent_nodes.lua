--[[
Find nodes that are gone: silent for a while, and still silent some time after that was noticed.
The second look is what keeps an outage of Redis from making every node look dead.

KEYS:
  nodes        zset  nodes by last beat
  stale        zset  nodes by the time they were first found silent
ARGV:
  now_ms       int   time, or empty for the server's
  stale_ms     int   silence that is noticed
  grace_ms     int   time from noticing to giving up
Returns:
  OK           names of the nodes that are gone
]]
--- @include "clock"
local nodes = KEYS[1]
local stale = KEYS[2]
local now_ms = ARGV[1]
local stale_ms = tonumber(ARGV[2])
local grace_ms = tonumber(ARGV[3])

local now = clock(now_ms)
for _, node in ipairs(redis.call('ZRANGEBYSCORE', nodes, '-inf', now - stale_ms)) do
  redis.call('ZADD', stale, 'NX', now, node)
end
return {'OK', redis.call('ZRANGEBYSCORE', stale, '-inf', now - grace_ms)}
