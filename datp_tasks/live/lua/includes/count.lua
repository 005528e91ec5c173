-- One more of something, in the slot of five seconds in which it happened.
local function count(counts, now, what, group, pipeline, owner)
  local slot = math.floor(now / 5000) * 5
  local name = string.format('%d|%s|%s|%s|%s', slot, what, group, pipeline, owner)
  redis.call('HINCRBY', counts, name, 1)
end
