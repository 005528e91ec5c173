--[[
The state is in SQL, in this very version: one that has ended or sleeps long may leave memory in
a while. Of one that goes on SQL has a copy, and nothing changes here.

Moves:
  final -> archived
  sleeping -> sleeping
  sleeping -> archived
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  to_archive   zset  transactions by the time they may be archived
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  version      int   that was written to SQL
  final_ms     int   how long one that has ended stays for readers
  sleeping_ms  int   how long one that sleeps stays; if it wakes sooner, it does not leave
Returns:
  OK           1 if it leaves, else 0
  CHANGED      version found; it stays due
  UNKNOWN      no such transaction here
]]
--- @include "clock"
--- @include "ended"
local state = KEYS[1]
local deltas = KEYS[2]
local to_archive = KEYS[3]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local version = ARGV[3]
local final_ms = ARGV[4]
local sleeping_ms = ARGV[5]

local found_version, status, wake =
  unpack(redis.call('HMGET', state, 'version', 'status', 'wakeTime'))
if not status then
  redis.call('ZREM', to_archive, tx_id)
  return {'UNKNOWN', ''}
end
local idle = ended(status) or status == 'sleeping' or status == 'in-doubt'
if found_version ~= version and idle then
  return {'CHANGED', found_version}
end
redis.call('ZREM', to_archive, tx_id)
if ended(status) then
  redis.call('PEXPIRE', state, final_ms)
  -- One that ended because SQL said so may have some.
  redis.call('PEXPIRE', deltas, final_ms)
elseif status == 'sleeping' and tonumber(wake) - clock(now_ms) > tonumber(sleeping_ms) then
  redis.call('PEXPIRE', state, sleeping_ms)
else
  return {'OK', 0}
end
return {'OK', 1}
