-- Adds deltas (one per argument from `first` on, as many as told) and counts them.
local function append(state, deltas, first, count)
  for index = first, first + count - 1 do
    redis.call('RPUSH', deltas, ARGV[index])
  end
  return redis.call('HINCRBY', state, 'version', count)
end
