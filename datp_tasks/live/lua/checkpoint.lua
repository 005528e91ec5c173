--[[
Record what a running transaction has done so far, and open its next step.

Moves:
  running -> running
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
ARGV:
  fence        int   of the claim
  count        int   number of deltas
  rest         list  the deltas, then names and values of the hash
Returns:
  OK           version, cancel reason or empty, switch sequence
  STALE        status found; another worker owns it
]]
--- @include "holds"
local state = KEYS[1]
local deltas = KEYS[2]
local fence = ARGV[1]
local count = tonumber(ARGV[2])
local rest = 3

local held, found, version, cancel, switch_seq =
  holds(state, fence, 'version', 'cancel', 'switchSeq')
if not held then
  return {'STALE', found}
end
version = version + count
if count > 0 then
  redis.call('RPUSH', deltas, unpack(ARGV, rest, rest + count - 1))
end
redis.call('HSET', state, 'version', version, unpack(ARGV, rest + count, #ARGV))
return {'OK', version, cancel or '', switch_seq or '0'}
