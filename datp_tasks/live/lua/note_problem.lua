--[[
Write down why a queued transaction does not move. It stays queued; its bell is rung again later.

Moves:
  queued -> queued
KEYS:
  state        hash  the transaction
ARGV:
  sequence     int   as the bell says
  problem      str   for people
Returns:
  OK           nothing more
  NOT_QUEUED   status found, or UNKNOWN
]]
local state = KEYS[1]
local sequence = ARGV[1]
local problem = ARGV[2]

local found = redis.call('HMGET', state, 'status', 'sequence')
if found[1] ~= 'queued' or found[2] ~= sequence then
  return {'NOT_QUEUED', found[1] or 'UNKNOWN'}
end
redis.call('HSET', state, 'problem', problem)
return {'OK', ''}
