--[[
Record what a running transaction has done so far, and open its next step.

Moves:
  running -> running
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  fence        int   of the claim
  snapshot     int   1 to have SQL get a copy of the state soon
  lines        json  the deltas, one a line
  fields       pairs names and values of the hash
Returns:
  OK           version, cancel reason or empty, switch sequence
  STALE        status found; another worker owns it
]]
--- @include "clock"
--- @include "holds"
--- @include "following"
--- @include "journal"
local state = KEYS[1]
local deltas = KEYS[2]
local to_archive = KEYS[3]
local stream = KEYS[4]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local snapshot = ARGV[4]
local lines = ARGV[5]
local fields = 6

local held, found, before, cancel, switch_seq =
  holds(state, fence, 'version', 'cancel', 'switchSeq')
if not held then
  return {'STALE', found}
end
local now = clock(now_ms)
local version = following(before, now)
if lines ~= '' then
  redis.call('RPUSH', deltas, lines)
end
redis.call('HSET', state, 'version', version, unpack(ARGV, fields, #ARGV))
if snapshot == '1' then
  redis.call('ZADD', to_archive, now, tx_id)
end
journal(stream, tx_id, version, before, fence, 'step', lines, '')
return {'OK', version, cancel or '', switch_seq or '0'}
