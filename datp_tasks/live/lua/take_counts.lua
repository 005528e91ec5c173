--[[
Hand out what was counted in slots that are over, and forget it here.

KEYS:
  counts       hash  what happened lately
ARGV:
  now_ms       int   time, or empty for the server's
Returns:
  OK           names and numbers, flat
]]
--- @include "clock"
local counts = KEYS[1]
local now_ms = ARGV[1]

local current = math.floor(clock(now_ms) / 5000) * 5
local all = redis.call('HGETALL', counts)
local over = {}
for index = 1, #all, 2 do
  if tonumber(string.match(all[index], '^%d+')) < current then
    over[#over + 1] = all[index]
    over[#over + 1] = all[index + 1]
    redis.call('HDEL', counts, all[index])
  end
end
return {'OK', over}
