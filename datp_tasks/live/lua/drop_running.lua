--[[
Forget that a node runs a transaction, unless it does: a node that was only slow may have claimed
it again since the caller looked.

KEYS:
  state        hash  the transaction
  running      set   transactions of the node
ARGV:
  tx_id        str   transaction id
  node         str   who is said to run it
Returns:
  OK           nothing more
  RUNNING      the node has it
]]
local state = KEYS[1]
local running = KEYS[2]
local tx_id = ARGV[1]
local node = ARGV[2]

if redis.call('HGET', state, 'node') == node then
  return {'RUNNING', ''}
end
redis.call('SREM', running, tx_id)
return {'OK', ''}
