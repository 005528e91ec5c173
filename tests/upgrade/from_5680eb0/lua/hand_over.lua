--[[
End a hop by queueing the transaction: for another node group, a message of its own, a return to
the parent pipeline, or because a stuck neighbour holds it up.

Moves:
  running -> queued
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  queued       zset  transactions by time queued
  processing   zset  transactions by claim time
  running      set   transactions of this node
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  fence        int   of the claim
  snapshot     int   1 to have SQL get a copy of the state soon
  lines        json  the deltas in the JSON since the last script, one a line
  json         json  the whole state
  fields       pairs names and values of the hash
Returns:
  OK           sequence, version
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

-- Into the queue: due for a bell, and a new sequence so that older bells find the door shut.
local function enqueue(state, queued, tx_id, now)
  redis.call('HSET', state, 'status', 'queued')
  redis.call('HDEL', state, 'node', 'wakeTime', 'wakeSwitch', 'problem')
  redis.call('ZADD', queued, now, tx_id)
  return redis.call('HINCRBY', state, 'sequence', 1)
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
local queued = KEYS[3]
local processing = KEYS[4]
local running = KEYS[5]
local to_archive = KEYS[6]
local stream = KEYS[7]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local snapshot = ARGV[4]
local lines = ARGV[5]
local json = ARGV[6]
local fields = 7

local held, found, before = holds(state, fence, 'version')
if not held then
  return {'STALE', found}
end
local now = clock(now_ms)
local version = following(before, now)
write_state(state, deltas, json, version, unpack(ARGV, fields, #ARGV))
redis.call('ZREM', processing, tx_id)
redis.call('SREM', running, tx_id)
if snapshot == '1' then
  redis.call('ZADD', to_archive, now, tx_id)
end
journal(stream, tx_id, version, before, fence, 'queue', lines, '')
return {'OK', enqueue(state, queued, tx_id, now), version}
