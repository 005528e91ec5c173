--[[
Give one worker the sole right to run a queued transaction. Every start goes through here. One
that has expired is given, but no step of it is opened: it waits for the timeout handler.

Moves:
  queued -> running
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  queued       zset  transactions by time queued
  processing   zset  transactions by claim time
  running      set   transactions of this node
  stream       stream  the journal on its way to SQL
  counts       hash  what happened lately, for the meter
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  sequence     int   as the bell says
  node         str   who claims
  held         str   "<version>/<fence>" of the JSON that the worker holds, or empty
  step_type    str   as the bell says
  begin        json  delta that opens a step of that type, or empty to open it later
Returns:
  OK           fence, fields, deltas before this claim, 1 if the step was opened
  UNKNOWN      no such transaction here
  NOT_QUEUED   status found
  OLD_BELL     sequence found
]]
-- The injected time, or Redis' own: no worker's wall clock decides anything.
local function clock(given_ms)
  if given_ms ~= '' then
    return tonumber(given_ms)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
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

local state = KEYS[1]
local deltas = KEYS[2]
local queued = KEYS[3]
local processing = KEYS[4]
local running = KEYS[5]
local stream = KEYS[6]
local counts = KEYS[7]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local sequence = ARGV[3]
local node = ARGV[4]
local held = ARGV[5]
local step_type = ARGV[6]
local begin = ARGV[7]

local status, found_sequence, previous_fence, version, json_version, opening_type, problem, expiry,
  group, pipeline, owner =
  unpack(redis.call('HMGET', state, 'status', 'sequence', 'fence', 'version', 'jsonVersion',
    'stepType', 'problem', 'expiresAt', 'group', 'pipeline', 'owner'))
if not status then
  redis.call('ZREM', queued, tx_id)
  return {'UNKNOWN', ''}
end
if status ~= 'queued' then
  return {'NOT_QUEUED', status}
end
if found_sequence ~= sequence then
  return {'OLD_BELL', found_sequence}
end
local now = clock(now_ms)
local fence = following(previous_fence, now)
local next_version = following(version, now)
local before = version == json_version and {} or redis.call('LRANGE', deltas, 0, -1)
local expired = expiry and tonumber(expiry) <= now
local opens = begin ~= '' and opening_type == step_type and not expired
if opens then
  redis.call('RPUSH', deltas, begin)
  redis.call('HSET', state, 'status', 'running', 'fence', fence, 'node', node,
    'version', next_version, 'begun', 1)
else
  redis.call('HSET', state, 'status', 'running', 'fence', fence, 'node', node,
    'version', next_version)
end
journal(stream, tx_id, next_version, version, fence, 'claim', opens and begin or '', node)
if problem then
  redis.call('HDEL', state, 'problem')
end
redis.call('ZREM', queued, tx_id)
redis.call('ZADD', processing, now, tx_id)
redis.call('SADD', running, tx_id)
count(counts, now, 'started', group, pipeline, owner)
local holds_json = json_version .. '/' .. previous_fence == held
return {'OK', fence, fields_of(state, holds_json), before, opens and 1 or 0}
