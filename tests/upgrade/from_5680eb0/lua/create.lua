--[[
Put an accepted transaction into the queue of its node group. Safe to repeat.

Moves:
  (none) -> queued
KEYS:
  state        hash    the transaction
  queued       zset    transactions by time queued
  external     string  the owner's external id, or a key that is not used
  counts       hash    what happened lately, for the meter
ARGV:
  now_ms       int     time, or empty for the server's
  tx_id        str     transaction id
  external_ms  int     how long the external id stays reserved here, 0 for none
  group        str     node group, for the meter
  pipeline     str     its pipeline, for the meter
  owner        str     whose it is, for the meter
  fields       pairs   names and values of the hash
Returns:
  OK           sequence
  EXISTS       status found; nothing was changed
]]
-- The injected time, or Redis' own: no worker's wall clock decides anything.
local function clock(given_ms)
  if given_ms ~= '' then
    return tonumber(given_ms)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- One more of something, in the slot of five seconds in which it happened.
local function count(counts, now, what, group, pipeline, owner)
  local slot = math.floor(now / 5000) * 5
  local name = string.format('%d|%s|%s|%s|%s', slot, what, group, pipeline, owner)
  redis.call('HINCRBY', counts, name, 1)
end

local state = KEYS[1]
local queued = KEYS[2]
local external = KEYS[3]
local counts = KEYS[4]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local external_ms = tonumber(ARGV[3])
local group = ARGV[4]
local pipeline = ARGV[5]
local owner = ARGV[6]
local fields = 7

local found = redis.call('HGET', state, 'status')
if found then
  return {'EXISTS', found}
end
local sequence = 1
redis.call('HSET', state, 'status', 'queued', 'sequence', sequence, 'fence', 0,
  'version', 0, 'jsonVersion', 0, unpack(ARGV, fields, #ARGV))
local now = clock(now_ms)
redis.call('ZADD', queued, now, tx_id)
count(counts, now, 'queued', group, pipeline, owner)
if external_ms > 0 then
  redis.call('SET', external, tx_id, 'PX', external_ms)
end
return {'OK', sequence}
