--[[
Give the role of archiving to one node for a while. Between two holders lies a pause, in which the
last one can finish what it has begun.

KEYS:
  lock1        string  who has the role; gone when no more work is given
  lock2        string  the same, and gone a while later
  fence        string  grows with every grant
ARGV:
  now_ms       int   time, or empty for the server's
  node         str   who asks
  lock1_ms     int   how long the role lasts
  lock2_ms     int   how long until another node can get it
Returns:
  GRANTED      fence
  YOURS        fence
  GRACE        who had it last
  HELD         who has it
]]
--- @include "clock"
--- @include "following"
local lock1 = KEYS[1]
local lock2 = KEYS[2]
local fence = KEYS[3]
local now_ms = ARGV[1]
local node = ARGV[2]
local lock1_ms = ARGV[3]
local lock2_ms = ARGV[4]

local holder = redis.call('GET', lock1)
if holder == node then
  return {'YOURS', redis.call('GET', fence)}
end
if holder then
  return {'HELD', holder}
end
local last = redis.call('GET', lock2)
if last and last ~= node then
  return {'GRACE', last}
end
local granted = following(redis.call('GET', fence), clock(now_ms))
redis.call('SET', fence, granted)
redis.call('SET', lock1, node, 'PX', lock1_ms)
redis.call('SET', lock2, node, 'PX', lock2_ms)
return {'GRANTED', granted}
