--[[
Put a running transaction to sleep until a time or a switch. A switch that was set since the
step looked at it, or a cancel, keeps it awake: neither must be missed.

Moves:
  running -> sleeping
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  processing   zset  transactions by claim time
  running      set   transactions of this node
  sleeping     zset  transactions by wake time
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  fence        int   of the claim
  sleep_ms     int   how long
  switch       str   switch to wait for, or empty
  seen         int   switch sequence that the step had seen
  heed_cancel  int   0 when the transaction is being rolled back already
  lines        json  the deltas in the JSON since the last script, one a line
  json         json  the whole state
  fields       pairs names and values of the hash
Returns:
  OK           wake time in ms, version
  AWAKE        fields; the switch was set meanwhile: run the step again
  CANCEL       reason; a cancel was asked for meanwhile
  STALE        status found; another worker owns it
]]
--- @include "clock"
--- @include "integer"
--- @include "holds"
--- @include "write_state"
--- @include "fields_of"
--- @include "following"
--- @include "journal"
local state = KEYS[1]
local deltas = KEYS[2]
local processing = KEYS[3]
local running = KEYS[4]
local sleeping = KEYS[5]
local to_archive = KEYS[6]
local stream = KEYS[7]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local sleep_ms = tonumber(ARGV[4])
local switch = ARGV[5]
local seen = tonumber(ARGV[6])
local heed_cancel = ARGV[7]
local lines = ARGV[8]
local json = ARGV[9]
local fields = 10

local held, found, before = holds(state, fence, 'version')
if not held then
  return {'STALE', found}
end
local cancel = redis.call('HGET', state, 'cancel')
if cancel and heed_cancel == '1' then
  return {'CANCEL', cancel}
end
if switch ~= '' then
  local value = redis.call('HGET', state, 'switch:' .. switch)
  if value and tonumber(string.match(value, '^%d+')) > seen then
    return {'AWAKE', fields_of(state, true)}
  end
end
local now = clock(now_ms)
local wake = integer(now + sleep_ms)
local version = following(before, now)
write_state(state, deltas, json, version,
  'status', 'sleeping', 'wakeTime', wake, unpack(ARGV, fields, #ARGV))
redis.call('HDEL', state, 'node', 'wakeSwitch')
if switch ~= '' then
  redis.call('HSET', state, 'wakeSwitch', switch)
end
redis.call('ZREM', processing, tx_id)
redis.call('SREM', running, tx_id)
redis.call('ZADD', sleeping, wake, tx_id)
redis.call('ZADD', to_archive, now, tx_id)
journal(stream, tx_id, version, before, fence, 'sleep', lines, wake .. ':' .. switch)
return {'OK', wake, version}
