-- The whole state as JSON replaces the deltas that led to it.
local function write_state(state, deltas, json, new_deltas)
  local version = redis.call('HINCRBY', state, 'version', new_deltas)
  redis.call('HSET', state, 'state', json, 'jsonVersion', version)
  redis.call('DEL', deltas)
  return version
end
