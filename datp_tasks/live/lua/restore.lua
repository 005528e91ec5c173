--[[
Bring a transaction back into memory, from the archive or from the journal. One that is here
already is newer and stays, unless it is older than what is brought: then Redis fell back in time.

Moves:
  archived -> queued
  archived -> sleeping
  archived -> in-doubt
  archived -> final
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  queued       zset  transactions by time queued
  processing   zset  transactions by claim time
  sleeping     zset  transactions by wake time
  exception    zset  transactions in doubt
  to_archive   zset  transactions by the time they may be archived
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  status       str   queued, sleeping, in-doubt or a final status
  version      int   number of deltas it has seen
  wake_ms      int   when it wakes, 0 if it does not sleep
  ttl_ms       int   leave again after so long, 0 to stay until archived again
  fields       pairs names and values of the hash
Returns:
  OK           sequence
  EXISTS       status found; nothing was changed
]]
--- @include "clock"
local state = KEYS[1]
local deltas = KEYS[2]
local queued = KEYS[3]
local processing = KEYS[4]
local sleeping = KEYS[5]
local exception = KEYS[6]
local to_archive = KEYS[7]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local status = ARGV[3]
local version = tonumber(ARGV[4])
local wake_ms = tonumber(ARGV[5])
local ttl_ms = tonumber(ARGV[6])
local fields = 7

local found, found_version, sequence, fence =
  unpack(redis.call('HMGET', state, 'status', 'version', 'sequence', 'fence'))
if found and tonumber(found_version) >= version then
  return {'EXISTS', found}
end
for _, list in ipairs({queued, processing, sleeping, exception, to_archive}) do
  redis.call('ZREM', list, tx_id)
end
redis.call('DEL', state, deltas)
local now = clock(now_ms)
-- Old bells must find the door shut, also those that were rung before memory was lost.
sequence = math.max(tonumber(sequence or '0') + 1, math.floor(now / 1000))
redis.call('HSET', state, 'sequence', sequence, unpack(ARGV, fields, #ARGV))
if fence and tonumber(fence) > tonumber(redis.call('HGET', state, 'fence')) then
  redis.call('HSET', state, 'fence', fence)
end
if status == 'queued' then
  redis.call('ZADD', queued, now, tx_id)
elseif status == 'sleeping' then
  redis.call('ZADD', sleeping, wake_ms, tx_id)
elseif status == 'in-doubt' then
  redis.call('ZADD', exception, now, tx_id)
end
if ttl_ms > 0 then
  redis.call('PEXPIRE', state, ttl_ms)
elseif status ~= 'queued' and status ~= 'in-doubt' then
  redis.call('ZADD', to_archive, now, tx_id)
end
return {'OK', sequence}
