--[[
Record what running transactions have done so far, and open their next steps.

Moves:
  running -> running
KEYS:
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  step_type    str   the step that all go on with, or empty if they stay where they are
  place        str   its place, or empty
  snapshot     int   1 to have SQL get copies of the states soon
EACH_KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
EACH_ARGV:
  tx_id        str   transaction id
  fence        int   of the claim
  lines        json  the deltas, one a line
  fields       pairs names and values of the hash
Returns:
  OK           nothing, or the request to stop or empty and the switch sequence
  STALE        status found; another worker owns it
]]
--- @include "clock"
--- @include "holds"
--- @include "following"
--- @include "each"
--- @include "put"
--- @include "entry"
local to_archive = KEYS[1]
local stream = KEYS[2]
local now_ms = ARGV[1]
local step_type = ARGV[2]
local place = ARGV[3]
local snapshot = ARGV[4]

local now = clock(now_ms)
local due, entries = {}, {}

local function checkpoint(state, deltas, tx_id, fence, lines, ...)
  local held, found, before, request, switch_seq =
    holds(state, fence, 'version', 'cancel', 'switchSeq')
  if not held then
    return {'STALE', found}
  end
  local version = following(before, now)
  if step_type == '' then
    redis.call('HSET', state, 'version', version, ...)
  else
    redis.call('HSET', state, 'version', version, 'stepType', step_type, 'place', place, ...)
  end
  if lines ~= '' then
    redis.call('RPUSH', deltas, lines)
  end
  if snapshot == '1' then
    put(due, now, tx_id)
  end
  entry(entries, tx_id, version, before, fence, 'step', lines, '')
  if request or switch_seq then
    return {'OK', request or '', switch_seq or '0'}
  end
  return {'OK'}
end

local answers = each(KEYS, 3, 2, ARGV, 5, checkpoint)
if #due > 0 then
  redis.call('ZADD', to_archive, unpack(due))
end
if #entries > 0 then
  redis.call('XADD', stream, '*', unpack(entries))
end
return answers
