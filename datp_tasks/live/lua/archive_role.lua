--[[
Ask for the role of the archiver. One node has it for a while and may ask for work; then comes a
pause in which it may finish but nobody gets work; then it is free for anybody.

KEYS:
  lock1        string  the node that may ask for work
  lock2        string  the node that had the role last; outlives lock1
  fence        string  number of the last grant
ARGV:
  now_ms       int     time, or empty for the server's
  node         str     who asks
  lock1_ms     int     how long the role lasts
  lock2_ms     int     how long it is kept from others
Returns:
  GRANTED      fence, newly given
  YOURS        fence, as given before
  GRACE        the node that had it last
  HELD         the node that has it
]]
--- @include "clock"
--- @include "integer"
local lock1 = KEYS[1]
local lock2 = KEYS[2]
local fence = KEYS[3]
local now_ms = ARGV[1]
local node = ARGV[2]
local lock1_ms = tonumber(ARGV[3])
local lock2_ms = tonumber(ARGV[4])

local holder = redis.call('GET', lock1)
if holder == node then
  return {'YOURS', redis.call('GET', fence)}
end
if holder then
  return {'HELD', holder}
end
local last = redis.call('GET', lock2)
if last then
  return {'GRACE', last}
end
local number = integer(math.max(tonumber(redis.call('GET', fence) or '0') + 1, clock(now_ms)))
redis.call('SET', fence, number)
redis.call('SET', lock1, node, 'PX', lock1_ms)
redis.call('SET', lock2, node, 'PX', lock2_ms)
return {'GRANTED', number}
