--[[
Bring a transaction back from SQL: one that had left memory, or that Redis has lost or has in an
older version. What is newer here stays as it is.

Moves:
  archived -> sleeping
  archived -> final
  (lost) -> queued
  (lost) -> sleeping
  (lost) -> in-doubt
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  queued       zset  transactions by time queued
  processing   zset  transactions by claim time
  running      set   transactions of the node that had the older version, or of none
  sleeping     zset  transactions by wake time
  exception    zset  transactions in doubt
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  node         str   who had the older version, or empty
  version      int   of what SQL has
  fence        int   no older claim is let through
  status       str   that it gets
  wake_ms      int   when it wakes, or empty
  ttl_ms       int   how long it stays if nothing happens, or 0
  rebuilt      int   1 if this is a change of its own, after a loss
  lines        json  the deltas of that change, one a line
  until_ms     int   from when on it must be read again first, or empty
  fields       pairs names and values of the hash
Returns:
  OK           bell
  NEWER        version found; nothing was changed
  MOVED        node found; look again
  LATE         time; something newer may have come and left since it was read
]]
--- @include "clock"
--- @include "following"
--- @include "journal"
--- @include "bell"
local state = KEYS[1]
local deltas = KEYS[2]
local queued = KEYS[3]
local processing = KEYS[4]
local running = KEYS[5]
local sleeping = KEYS[6]
local exception = KEYS[7]
local to_archive = KEYS[8]
local stream = KEYS[9]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local node = ARGV[3]
local version = ARGV[4]
local fence = ARGV[5]
local status = ARGV[6]
local wake_ms = ARGV[7]
local ttl_ms = ARGV[8]
local rebuilt = ARGV[9]
local lines = ARGV[10]
local until_ms = ARGV[11]
local fields = 12

local found, holder, sequence = unpack(redis.call('HMGET', state, 'version', 'node', 'sequence'))
if found and tonumber(found) >= tonumber(version) then
  return {'NEWER', found}
end
if (holder or '') ~= node then
  return {'MOVED', holder or ''}
end
local now = clock(now_ms)
if until_ms ~= '' and now >= tonumber(until_ms) then
  return {'LATE', now}
end
redis.call('DEL', state, deltas)
for _, list in ipairs({queued, processing, sleeping, exception, to_archive}) do
  redis.call('ZREM', list, tx_id)
end
redis.call('SREM', running, tx_id)
local before = version
if rebuilt == '1' then
  version = following(before, now)
  journal(stream, tx_id, version, before, fence, 'rebuild', lines, status)
end
-- `claim` must refuse the bells of before, and how many there were is not known.
sequence = following(sequence, math.floor(now / 1000))
redis.call('HSET', state, 'status', status, 'fence', fence, 'sequence', sequence,
  'version', version, 'jsonVersion', version, unpack(ARGV, fields, #ARGV))
local lists = {queued = queued, sleeping = sleeping, ['in-doubt'] = exception}
if lists[status] then
  redis.call('ZADD', lists[status], status == 'sleeping' and wake_ms or now, tx_id)
end
if ttl_ms ~= '0' then
  redis.call('PEXPIRE', state, ttl_ms)
elseif status ~= 'queued' then
  redis.call('ZADD', to_archive, now, tx_id)
end
return {'OK', bell(state)}
