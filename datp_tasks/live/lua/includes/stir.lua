-- A sleeping transaction is about to go on, so it stays in memory from now.
local function stir(state, sleeping, to_archive, tx_id, version)
  redis.call('PERSIST', state)
  redis.call('ZREM', sleeping, tx_id)
  redis.call('ZREM', to_archive, tx_id)
  redis.call('HSET', state, 'priority', 'out', 'version', version)
end
