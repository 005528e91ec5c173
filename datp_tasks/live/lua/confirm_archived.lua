--[[
The state is in SQL, in this very version: one that has ended may leave memory in a while.

Moves:
  final -> archived
  sleeping -> sleeping
KEYS:
  state        hash  the transaction
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
local state = KEYS[1]
local to_archive = KEYS[2]
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
if found[2] ~= 'sleeping' then
  redis.call('PEXPIRE', state, ttl_ms)
end
return {'OK', ''}
