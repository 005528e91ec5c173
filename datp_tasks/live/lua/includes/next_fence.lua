-- Follows the clock, so that it does not go backwards when Redis loses its last writes.
local function next_fence(state, now)
  local previous = tonumber(redis.call('HGET', state, 'fence') or '0')
  return math.max(previous + 1, now)
end
