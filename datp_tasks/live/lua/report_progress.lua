--[[
Show a progress report to clients that ask for the status.

Moves:
  running -> running
KEYS:
  state        hash  the transaction
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  fence        int   of the claim
  progress     json  the report
  channel      str   where to tell about it
Returns:
  OK           nothing more
  STALE        status found; another worker owns it
]]
--- @include "clock"
--- @include "holds"
--- @include "following"
--- @include "journal"
local state = KEYS[1]
local stream = KEYS[2]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local progress = ARGV[4]
local channel = ARGV[5]

local held, found, before = holds(state, fence, 'version')
if not held then
  return {'STALE', found}
end
local version = following(before, clock(now_ms))
redis.call('HSET', state, 'progress', progress, 'version', version)
journal(stream, tx_id, version, before, fence, 'progress', '', progress)
redis.call('PUBLISH', channel, 'progress:' .. tx_id .. ':running')
return {'OK', ''}
