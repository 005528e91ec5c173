-- Into the queue: due for a bell, and a new sequence so that `claim` refuses older bells.
local function enqueue(state, queued, tx_id, now)
  redis.call('HSET', state, 'status', 'queued')
  redis.call('HDEL', state, 'node', 'wakeTime', 'wakeSwitch', 'problem')
  redis.call('ZADD', queued, now, tx_id)
  return redis.call('HINCRBY', state, 'sequence', 1)
end
