--[[
Forget a transaction that has ended and that SQL has: what it was about is erased. One of which
the archiver has something to write stays.

KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  to_archive   zset  transactions by the time they may be archived
ARGV:
  tx_id        str   transaction id
Returns:
  OK           nothing more; also if it was not here
  BUSY         it goes on, or is still to be archived
]]
--- @include "ended"
local state = KEYS[1]
local deltas = KEYS[2]
local to_archive = KEYS[3]
local tx_id = ARGV[1]

local status = redis.call('HGET', state, 'status')
if status and (not ended(status) or redis.call('ZSCORE', to_archive, tx_id)) then
  return {'BUSY', ''}
end
redis.call('DEL', state, deltas)
return {'OK', ''}
