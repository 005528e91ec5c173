-- What a bell for this transaction must say: sequence, group, step type, place, priority, owner.
local function bell(state)
  return redis.call('HMGET', state, 'sequence', 'group', 'stepType', 'place', 'priority',
    'owner')
end
