--[[
Show a progress report to whoever asks for the status.

Moves:
  running -> running
KEYS:
  state        hash  the transaction
ARGV:
  tx_id        str   transaction id
  fence        int   of the claim
  progress     json  the report
  channel      str   where to tell about it
Returns:
  OK           nothing more
  STALE        status found; another worker owns it
]]
--- @include "holds"
local state = KEYS[1]
local tx_id = ARGV[1]
local fence = ARGV[2]
local progress = ARGV[3]
local channel = ARGV[4]

local held, found = holds(state, fence)
if not held then
  return {'STALE', found}
end
redis.call('HSET', state, 'progress', progress)
redis.call('PUBLISH', channel, 'progress:' .. tx_id .. ':running')
return {'OK', ''}
