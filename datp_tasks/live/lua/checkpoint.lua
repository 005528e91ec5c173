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
--- @include "append"
--- @include "write_fields"
local state = KEYS[1]
local deltas = KEYS[2]
local fence = ARGV[1]
local count = tonumber(ARGV[2])
local rest = 3

local held, found = holds(state, fence)
if not held then
  return {'STALE', found}
end
local version = append(state, deltas, rest, count)
write_fields(state, rest + count)
local flags = redis.call('HMGET', state, 'cancel', 'switchSeq')
return {'OK', version, flags[1] or '', flags[2] or '0'}
