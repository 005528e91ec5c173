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
  OK           fence, 1 if the step was opened, fields, deltas before this claim
  NEW          the same two, owner, group, pipeline, step type, place, state: all there is to know
  UNKNOWN      no such transaction here
  NOT_QUEUED   status found
  OLD_BELL     sequence found
]]
--- @include "clock"
--- @include "following"
--- @include "each"
--- @include "fields_of"
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
local score = string.format('%.0f', now)
local left, taken, times, entries, counted = {}, {}, {}, {}, {}
-- How many fields `create` gives to one of which its client said nothing special.
local plain = 12

local function claim(state, deltas, tx_id, sequence, held)
  local status, found_sequence, found_fence, found_version, json_version, owner, group, pipeline,
    found_type, place, json, expires_at, problem = unpack(redis.call('HMGET', state, 'status',
    'sequence', 'fence', 'version', 'jsonVersion', 'owner', 'group', 'pipeline', 'stepType',
    'place', 'state', 'expiresAt', 'problem'))
  if not status then
    left[#left + 1] = tx_id
    return {'UNKNOWN', ''}
  elseif status ~= 'queued' then
    return {'NOT_QUEUED', status}
  elseif found_sequence ~= sequence then
    return {'OLD_BELL', found_sequence}
  end
  local is_new = found_version == '0' and found_fence == '0'
    and redis.call('HLEN', state) == plain
  local fields = not is_new and fields_of(state, json_version .. '/' .. found_fence == held)
  local before = found_version == json_version and {} or redis.call('LRANGE', deltas, 0, -1)
  local fence = following(found_fence, now)
  local version = following(found_version, now)
  local expired = expires_at and tonumber(expires_at) <= now
  local opens = begin ~= '' and found_type == step_type and not expired
  if opens then
    redis.call('HSET', state, 'status', 'running', 'fence', fence, 'node', node,
      'version', version, 'begun', '1')
    redis.call('RPUSH', deltas, begin)
  else
    redis.call('HSET', state, 'status', 'running', 'fence', fence, 'node', node,
      'version', version)
  end
  if problem then
    redis.call('HDEL', state, 'problem')
  end
  entry(entries, tx_id, version, found_version, fence, 'claim', opens and begin or '', node)
  tally(counted, 'started', group, pipeline, owner)
  left[#left + 1] = tx_id
  taken[#taken + 1] = tx_id
  put(times, score, tx_id)
  if is_new then
    return {'NEW', fence, opens and 1 or 0, owner, group, pipeline, found_type, place, json}
  end
  return {'OK', fence, opens and 1 or 0, fields, before}
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
