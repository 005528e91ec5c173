--[[
Follow the record: SQL has committed a final status, so the live transaction ends too.

Moves:
  running -> final
  (any) -> final
KEYS:
  state        hash    the transaction
  deltas       list    deltas since the last full JSON
  queued       zset    transactions by time queued
  processing   zset    transactions by claim time
  running      set     transactions of this node
  sleeping     zset    transactions by wake time
  exception    zset    transactions in doubt
  to_archive   zset    transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
  counts       hash    what happened lately, for the meter
ARGV:
  now_ms       int     time, or empty for the server's
  tx_id        str     transaction id
  fence        int     of the claim that SQL accepted, or empty to follow SQL in any case
  status       str     the final status
  archive_ms   int     delay before archiving
  channel      str     where to tell about it
  lines        json    the deltas in the JSON since the last script, one a line
  json         json    the whole state, or empty to keep what is there
  fields       pairs   names and values of the hash
Returns:
  OK           version
  FINAL        status found; it had ended before
  STALE        status found; another worker owns it
  UNKNOWN      no such transaction here
]]
-- The injected time, or Redis' own: no worker's wall clock decides anything.
local function clock(given_ms)
  if given_ms ~= '' then
    return tonumber(given_ms)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- True for a final status: whatever is none of those that go on.
local function ended(status)
  return status ~= 'queued' and status ~= 'running' and status ~= 'sleeping' and status ~= 'in-doubt'
end

-- True while the caller's claim is the last one; then the status found and the fields asked for.
local function holds(state, fence, ...)
  local found = redis.call('HMGET', state, 'status', 'fence', ...)
  if not found[1] then
    return false, 'UNKNOWN'
  end
  return found[1] == 'running' and found[2] == fence, found[1], unpack(found, 3, #found)
end

-- The whole state as JSON replaces the deltas that led to it. More fields may follow.
local function write_state(state, deltas, json, version, ...)
  redis.call('HSET', state, 'state', json, 'version', version, 'jsonVersion', version, ...)
  redis.call('DEL', deltas)
end

-- The next fence or version. It follows the clock, so that it does not go backwards when Redis
-- loses its last writes.
local function following(previous, now)
  return string.format('%.0f', math.max(tonumber(previous or 0) + 1, now))
end

-- One more entry of the journal: what led from one version to the next, and who did it. It is one
-- text, as SQL will have it: fields of their own would cost twice the time.
local function journal(stream, tx_id, version, before, fence, kind, lines, extra)
  local head = table.concat({tx_id, '@' .. version, before, fence, kind,
    (string.gsub(extra, '[\\\n]', {['\\'] = '\\\\', ['\n'] = '\\n'}))}, ' ')
  redis.call('XADD', stream, '*', 'e', lines == '' and head or head .. '\n' .. lines)
end

-- One more of something, in the slot of five seconds in which it happened.
local function count(counts, now, what, group, pipeline, owner)
  local slot = math.floor(now / 5000) * 5
  local name = string.format('%d|%s|%s|%s|%s', slot, what, group, pipeline, owner)
  redis.call('HINCRBY', counts, name, 1)
end

local state = KEYS[1]
local deltas = KEYS[2]
local queued = KEYS[3]
local processing = KEYS[4]
local running = KEYS[5]
local sleeping = KEYS[6]
local exception = KEYS[7]
local to_archive = KEYS[8]
local stream = KEYS[9]
local counts = KEYS[10]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local status = ARGV[4]
local archive_ms = tonumber(ARGV[5])
local channel = ARGV[6]
local lines = ARGV[7]
local json = ARGV[8]
local fields = 9

local held, found, before, last_fence, group, pipeline, owner =
  holds(state, fence, 'version', 'fence', 'group', 'pipeline', 'owner')
if found == 'UNKNOWN' then
  redis.call('SREM', running, tx_id)
  redis.call('ZREM', sleeping, tx_id)
  return {'UNKNOWN', ''}
end
if ended(found) then
  redis.call('SREM', running, tx_id)
  return {'FINAL', found}
end
if fence ~= '' and not held then
  return {'STALE', found}
end
local now = clock(now_ms)
local version = following(before, now)
if json ~= '' then
  write_state(state, deltas, json, version, 'status', status, unpack(ARGV, fields, #ARGV))
else
  redis.call('HSET', state, 'status', status, 'version', version, unpack(ARGV, fields, #ARGV))
end
redis.call('HDEL', state, 'node', 'wakeTime', 'wakeSwitch', 'cancel', 'problem', 'stepType')
local listed = {
  queued = queued, running = processing, sleeping = sleeping, ['in-doubt'] = exception,
}
redis.call('ZREM', listed[found], tx_id)
redis.call('SREM', running, tx_id)
redis.call('PERSIST', state)
redis.call('ZADD', to_archive, now + archive_ms, tx_id)
journal(stream, tx_id, version, before, last_fence, 'final', lines, status)
count(counts, now, status, group, pipeline, owner)
redis.call('PUBLISH', channel, 'completed:' .. tx_id .. ':' .. status)
return {'OK', version}
