--[[
Put accepted transactions into the queue of their node group. Safe to repeat.

Moves:
  (none) -> queued
KEYS:
  queued       zset    transactions by time queued
  counts       hash    what happened lately, for the meter
ARGV:
  now_ms       int     time, or empty for the server's
  group        str     node group
  pipeline     str     of all
  step_type    str     their first step
  place        str     of that step
EACH_KEYS:
  state        hash    the transaction
EACH_ARGV:
  tx_id        str     transaction id
  owner        str     whose it is
  fields       pairs   names and values of what else is in the hash
Returns:
  OK           sequence
  EXISTS       status found; nothing was changed
]]
--- @include "clock"
--- @include "each"
--- @include "put"
--- @include "tally"
--- @include "count_all"
local queued = KEYS[1]
local counts = KEYS[2]
local now_ms = ARGV[1]
local group = ARGV[2]
local pipeline = ARGV[3]
local step_type = ARGV[4]
local place = ARGV[5]

local now = clock(now_ms)
local score = string.format('%.0f', now)
local placed, counted = {}, {}

local function create(state, tx_id, owner, ...)
  local found = redis.call('HGET', state, 'status')
  if found then
    return {'EXISTS', found}
  end
  -- `claim` counts these fields and the JSON, which is always given.
  redis.call('HSET', state, 'status', 'queued', 'sequence', '1', 'fence', '0',
    'version', '0', 'jsonVersion', '0', 'group', group, 'pipeline', pipeline, 'owner', owner,
    'stepType', step_type, 'place', place, 'priority', 'in', ...)
  put(placed, score, tx_id)
  tally(counted, 'queued', group, pipeline, owner)
  return {'OK', 1}
end

local answers = each(KEYS, 3, 1, ARGV, 6, create)
if #placed > 0 then
  redis.call('ZADD', queued, unpack(placed))
  count_all(counts, now, counted)
end
return answers
