--[[
Let an owner do something, if its bucket has a token. What costs more than there is makes a debt
that time pays back. Further tokens may be taken along for what comes next, if they are there.
What was taken and not used is given back as a cost below 0, which is never refused.

KEYS:
  bucket       hash  tokens and the time they were counted
ARGV:
  now_ms       int   time, or empty for the server's
  per_s        str   tokens that come back in a second
  burst        int   tokens that the bucket holds
  cost         int   tokens to take; below 0: to give back
  more         int   further tokens to take if they are there
Returns:
  OK           how many further tokens were taken, how many are left (less than 0: a debt)
  LIMITED      milliseconds until there is a token
]]
--- @include "clock"
--- @include "integer"
local bucket = KEYS[1]
local now_ms = ARGV[1]
local per_s = ARGV[2]
local burst = tonumber(ARGV[3])
local cost = tonumber(ARGV[4])
local more = tonumber(ARGV[5])

local now = clock(now_ms)
local per_ms = tonumber(per_s) / 1000
local found = redis.call('HMGET', bucket, 'tokens', 'at')
local passed = math.max(0, now - (tonumber(found[2]) or now))
local tokens = math.min(burst, (tonumber(found[1]) or burst) + passed * per_ms)
if cost >= 0 and tokens < 1 then
  return {'LIMITED', integer(math.ceil((1 - tokens) / per_ms))}
end
tokens = math.min(burst, tokens - cost)
local taken = math.max(0, math.min(more, math.floor(tokens)))
tokens = tokens - taken
redis.call('HSET', bucket, 'tokens', string.format('%.6f', tokens), 'at', integer(now))
-- When it is full again there is nothing to remember.
redis.call('PEXPIRE', bucket, integer(math.ceil((burst - tokens) / per_ms) + 1000))
return {'OK', taken, integer(math.floor(tokens))}
