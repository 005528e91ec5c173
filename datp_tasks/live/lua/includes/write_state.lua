-- The whole state as JSON replaces the deltas that led to it. More fields may follow.
local function write_state(state, deltas, json, version, ...)
  redis.call('HSET', state, 'state', json, 'version', version, 'jsonVersion', version, ...)
  redis.call('DEL', deltas)
end
