--[[
The state is in SQL, in this very version: one that has ended may leave memory in a while.

Moves:
  final -> archived
  sleeping -> sleeping
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  to_archive   zset  transactions by the time they may be archived
ARGV:
  tx_id        str   transaction id
  version      int   that was written to SQL
  ttl_ms       int   how long it stays for readers
Returns:
  OK           nothing more
  CHANGED      version found; it stays due
  UNKNOWN      no such transaction here
]]
--- @include "ended"
local state = KEYS[1]
local deltas = KEYS[2]
local to_archive = KEYS[3]
local tx_id = ARGV[1]
local version = ARGV[2]
local ttl_ms = tonumber(ARGV[3])

local found = redis.call('HMGET', state, 'version', 'status')
if not found[1] then
  redis.call('ZREM', to_archive, tx_id)
  return {'UNKNOWN', ''}
end
if found[1] ~= version then
  return {'CHANGED', found[1]}
end
redis.call('ZREM', to_archive, tx_id)
if ended(found[2]) then
  redis.call('PEXPIRE', state, ttl_ms)
  redis.call('PEXPIRE', deltas, ttl_ms)
end
return {'OK', ''}
