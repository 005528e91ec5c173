--[[
Give one worker the sole right to run queued transactions. Every start goes through here. One
that has expired is given, but no step of it is opened: it waits for the timeout handler.

Moves:
  queued -> running
KEYS:
  queued       zset  transactions by time queued
  processing   zset  transactions by claim time
  running      set   transactions of this node
  stream       stream  the journal on its way to SQL
  counts       hash  what happened lately, for the meter
ARGV:
  now_ms       int   time, or empty for the server's
  node         str   who claims
  step_type    str   as the bell says
  begin        json  delta that opens a step of that type, or empty to open it later
EACH_KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
EACH_ARGV:
  tx_id        str   transaction id
  sequence     int   as the bell says
  held         str   "<version>/<fence>" of the JSON that the worker holds, or empty
Returns:
  OK           fence, fields, deltas before this claim, 1 if the step was opened
  UNKNOWN      no such transaction here
  NOT_QUEUED   status found
  OLD_BELL     sequence found
]]
--- @include "clock"
--- @include "following"
--- @include "each"
--- @include "put"
--- @include "entry"
--- @include "tally"
--- @include "count_all"
local queued = KEYS[1]
local processing = KEYS[2]
local running = KEYS[3]
local stream = KEYS[4]
local counts = KEYS[5]
local now_ms = ARGV[1]
local node = ARGV[2]
local step_type = ARGV[3]
local begin = ARGV[4]

local now = clock(now_ms)
local left, taken, times, entries, counted = {}, {}, {}, {}, {}
local found = {}

local function claim(state, deltas, tx_id, sequence, held)
  local flat = redis.call('HGETALL', state)
  local at = nil
  for name in pairs(found) do
    found[name] = nil
  end
  for index = 1, #flat, 2 do
    found[flat[index]] = flat[index + 1]
    at = flat[index] == 'state' and index + 1 or at
  end
  if not found.status then
    left[#left + 1] = tx_id
    return {'UNKNOWN', ''}
  elseif found.status ~= 'queued' then
    return {'NOT_QUEUED', found.status}
  elseif found.sequence ~= sequence then
    return {'OLD_BELL', found.sequence}
  end
  local fence = following(found.fence, now)
  local version = following(found.version, now)
  local before = found.version == found.jsonVersion and {} or redis.call('LRANGE', deltas, 0, -1)
  local expired = found.expiresAt and tonumber(found.expiresAt) <= now
  local opens = begin ~= '' and found.stepType == step_type and not expired
  if opens then
    redis.call('HSET', state, 'status', 'running', 'fence', fence, 'node', node,
      'version', version, 'begun', 1)
    redis.call('RPUSH', deltas, begin)
  else
    redis.call('HSET', state, 'status', 'running', 'fence', fence, 'node', node,
      'version', version)
  end
  if found.problem then
    redis.call('HDEL', state, 'problem')
  end
  entry(entries, tx_id, version, found.version, fence, 'claim', opens and begin or '', node)
  tally(counted, 'started', found.group, found.pipeline, found.owner)
  left[#left + 1] = tx_id
  taken[#taken + 1] = tx_id
  put(times, now, tx_id)
  if found.jsonVersion .. '/' .. found.fence == held then
    flat[at] = ''
  end
  return {'OK', fence, flat, before, opens and 1 or 0}
end

local answers = each(KEYS, 6, 2, ARGV, 5, claim)
if #left > 0 then
  redis.call('ZREM', queued, unpack(left))
end
if #taken > 0 then
  redis.call('ZADD', processing, unpack(times))
  redis.call('SADD', running, unpack(taken))
  redis.call('XADD', stream, '*', unpack(entries))
  count_all(counts, now, counted)
end
return answers
