--[[
A node says that it lives.

KEYS:
  nodes        zset  nodes by last beat
  stale        zset  nodes by the time they were first found silent
ARGV:
  now_ms       int   time, or empty for the server's
  node         str   who
Returns:
  OK           time in ms
]]
--- @include "clock"
--- @include "integer"
local nodes = KEYS[1]
local stale = KEYS[2]
local now_ms = ARGV[1]
local node = ARGV[2]

local now = integer(clock(now_ms))
redis.call('ZADD', nodes, now, node)
redis.call('ZREM', stale, node)
return {'OK', now}
