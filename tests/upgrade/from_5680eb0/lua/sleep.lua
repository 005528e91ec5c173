--[[
Put a running transaction to sleep until a time or a switch. A switch that was set since the
step looked at it, or a cancel, keeps it awake: neither must be missed.

Moves:
  running -> sleeping
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  processing   zset  transactions by claim time
  running      set   transactions of this node
  sleeping     zset  transactions by wake time
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  fence        int   of the claim
  sleep_ms     int   how long
  switch       str   switch to wait for, or empty
  seen         int   switch sequence that the step had seen
  heed_cancel  int   0 when the transaction is being rolled back already
  lines        json  the deltas in the JSON since the last script, one a line
  json         json  the whole state
  fields       pairs names and values of the hash
Returns:
  OK           wake time in ms, version
  AWAKE        fields; the switch was set meanwhile: run the step again
  CANCEL       reason; a cancel was asked for meanwhile
  STALE        status found; another worker owns it
]]
-- The injected time, or Redis' own: no worker's wall clock decides anything.
local function clock(given_ms)
  if given_ms ~= '' then
    return tonumber(given_ms)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Lua would print a large number as 1.8e+12.
local function integer(number)
  return string.format('%.0f', number)
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

-- All fields, flat; the JSON is left out when the caller already holds it.
local function fields_of(state, holds_json)
  local all = redis.call('HGETALL', state)
  if holds_json then
    for index = 1, #all, 2 do
      if all[index] == 'state' then
        all[index + 1] = ''
      end
    end
  end
  return all
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

local state = KEYS[1]
local deltas = KEYS[2]
local processing = KEYS[3]
local running = KEYS[4]
local sleeping = KEYS[5]
local to_archive = KEYS[6]
local stream = KEYS[7]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local sleep_ms = tonumber(ARGV[4])
local switch = ARGV[5]
local seen = tonumber(ARGV[6])
local heed_cancel = ARGV[7]
local lines = ARGV[8]
local json = ARGV[9]
local fields = 10

local held, found, before = holds(state, fence, 'version')
if not held then
  return {'STALE', found}
end
local cancel = redis.call('HGET', state, 'cancel')
if cancel and heed_cancel == '1' then
  return {'CANCEL', cancel}
end
if switch ~= '' then
  local value = redis.call('HGET', state, 'switch:' .. switch)
  if value and tonumber(string.match(value, '^%d+')) > seen then
    return {'AWAKE', fields_of(state, true)}
  end
end
local now = clock(now_ms)
local wake = integer(now + sleep_ms)
local version = following(before, now)
write_state(state, deltas, json, version,
  'status', 'sleeping', 'wakeTime', wake, unpack(ARGV, fields, #ARGV))
redis.call('HDEL', state, 'node', 'wakeSwitch')
if switch ~= '' then
  redis.call('HSET', state, 'wakeSwitch', switch)
end
redis.call('ZREM', processing, tx_id)
redis.call('SREM', running, tx_id)
redis.call('ZADD', sleeping, wake, tx_id)
redis.call('ZADD', to_archive, now, tx_id)
journal(stream, tx_id, version, before, fence, 'sleep', lines, wake .. ':' .. switch)
return {'OK', wake, version}
