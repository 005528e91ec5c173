-- Follows the clock, so that it does not go backwards when Redis loses its last writes.
local function next_fence(previous, now)
  return math.max(tonumber(previous or 0) + 1, now)
end
