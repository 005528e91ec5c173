--[[
Put accepted transactions into the queue of their node group. Safe to repeat.

Moves:
  (none) -> queued
KEYS:
  queued       zset    transactions by time queued
  counts       hash    what happened lately, for the meter
ARGV:
  now_ms       int     time, or empty for the server's
EACH_KEYS:
  state        hash    the transaction
EACH_ARGV:
  tx_id        str     transaction id
  group        str     node group
  pipeline     str     its pipeline
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

local now = clock(now_ms)
local placed, counted = {}, {}

local function create(state, tx_id, group, pipeline, owner, ...)
  local found = redis.call('HGET', state, 'status')
  if found then
    return {'EXISTS', found}
  end
  local sequence = 1
  -- `claim` counts these fields and the four that are always given.
  redis.call('HSET', state, 'status', 'queued', 'sequence', sequence, 'fence', 0,
    'version', 0, 'jsonVersion', 0, 'group', group, 'pipeline', pipeline, 'owner', owner, ...)
  put(placed, now, tx_id)
  tally(counted, 'queued', group, pipeline, owner)
  return {'OK', sequence}
end

local answers = each(KEYS, 3, 1, ARGV, 2, create)
if #placed > 0 then
  redis.call('ZADD', queued, unpack(placed))
  count_all(counts, now, counted)
end
return answers
