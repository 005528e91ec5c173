--[[
Record what a running transaction has done so far, and open its next step.

Moves:
  running -> running
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  fence        int   of the claim
  snapshot     int   1 to have SQL get a copy of the state soon
  lines        json  the deltas, one a line
  fields       pairs names and values of the hash
Returns:
  OK           version, cancel reason or empty, switch sequence
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
local to_archive = KEYS[3]
local stream = KEYS[4]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local snapshot = ARGV[4]
local lines = ARGV[5]
local fields = 6

local held, found, before, cancel, switch_seq =
  holds(state, fence, 'version', 'cancel', 'switchSeq')
if not held then
  return {'STALE', found}
end
local now = clock(now_ms)
local version = following(before, now)
if lines ~= '' then
  redis.call('RPUSH', deltas, lines)
end
redis.call('HSET', state, 'version', version, unpack(ARGV, fields, #ARGV))
if snapshot == '1' then
  redis.call('ZADD', to_archive, now, tx_id)
end
journal(stream, tx_id, version, before, fence, 'step', lines, '')
return {'OK', version, cancel or '', switch_seq or '0'}
