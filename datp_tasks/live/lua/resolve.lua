--[[
Queue a transaction again that was in doubt: an operator has decided what became of its step.

Moves:
  in-doubt -> queued
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  queued       zset  transactions by time queued
  exception    zset  transactions in doubt
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  version      int   that the decision was made on
  fence        int   no older claim is let through
  lines        json  the deltas that state the decision, one a line
  json         json  the whole state
  fields       pairs names and values of the hash
Returns:
  OK           bell
  NOT_PARKED   status found, or UNKNOWN
  CHANGED      version found; look again
]]
--- @include "clock"
--- @include "write_state"
--- @include "following"
--- @include "journal"
--- @include "enqueue"
--- @include "bell"
local state = KEYS[1]
local deltas = KEYS[2]
local queued = KEYS[3]
local exception = KEYS[4]
local to_archive = KEYS[5]
local stream = KEYS[6]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local version = ARGV[3]
local fence = ARGV[4]
local lines = ARGV[5]
local json = ARGV[6]
local fields = 7

local status, found = unpack(redis.call('HMGET', state, 'status', 'version'))
if status ~= 'in-doubt' then
  return {'NOT_PARKED', status or 'UNKNOWN'}
end
if found ~= version then
  return {'CHANGED', found}
end
local now = clock(now_ms)
local next_version = following(version, now)
write_state(state, deltas, json, next_version, 'fence', fence, unpack(ARGV, fields, #ARGV))
redis.call('ZREM', exception, tx_id)
redis.call('ZREM', to_archive, tx_id)
journal(stream, tx_id, next_version, version, fence, 'queue', lines, '')
enqueue(state, queued, tx_id, now)
return {'OK', bell(state)}
