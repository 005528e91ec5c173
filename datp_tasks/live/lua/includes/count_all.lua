-- Adds what a vector counted to the slot of five seconds in which it happened.
local function count_all(counts, now, counted)
  local slot = string.format('%d|', math.floor(now / 5000) * 5)
  for name, number in pairs(counted) do
    redis.call('HINCRBY', counts, slot .. name, number)
  end
end
