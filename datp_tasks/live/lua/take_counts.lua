--[[
Hand out what was counted in slots that are over, and forget it here: a part of it, because much
may have been counted while the meter did not run. The cursor leads to the next part.

KEYS:
  counts       hash  what happened lately
ARGV:
  now_ms       int   time, or empty for the server's
  cursor       str   0 for the first part, then what the call before returned
  fields_max   int   about how many to look at
Returns:
  OK           names and numbers, flat; the next cursor, 0 after the last part
]]
--- @include "clock"
local counts = KEYS[1]
local now_ms = ARGV[1]
local cursor = ARGV[2]
local fields_max = ARGV[3]

local current = math.floor(clock(now_ms) / 5000) * 5
local following, page = unpack(redis.call('HSCAN', counts, cursor, 'COUNT', fields_max))
local over = {}
local names = {}
for index = 1, #page, 2 do
  if tonumber(string.match(page[index], '^%d+')) < current then
    over[#over + 1] = page[index]
    over[#over + 1] = page[index + 1]
    names[#names + 1] = page[index]
  end
end
if #names > 0 then
  redis.call('HDEL', counts, unpack(names))
end
return {'OK', over, following}
