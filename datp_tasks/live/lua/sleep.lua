--[[
Put running transactions to sleep until a time or a switch. A switch that was set since the step
looked at it, or a request to stop, keeps the transaction awake: neither must be missed.

Moves:
  running -> sleeping
KEYS:
  processing   zset  transactions by claim time
  running      set   transactions of this node
  sleeping     zset  transactions by wake time
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
EACH_KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
EACH_ARGV:
  tx_id        str   transaction id
  fence        int   of the claim
  sleep_ms     int   how long
  switch       str   switch to wait for, or empty
  seen         int   switch sequence that the step had seen
  heed_stop    int   0 when the transaction is being rolled back already
  lines        json  the deltas in the JSON since the last script, one a line
  json         json  the whole state
  fields       pairs names and values of the hash
Returns:
  OK           wake time in ms, version
  AWAKE        fields; the switch was set meanwhile: run the step again
  STOP         request; it was asked to stop meanwhile
  STALE        status found; another worker owns it
]]
--- @include "clock"
--- @include "integer"
--- @include "holds"
--- @include "write_state"
--- @include "fields_of"
--- @include "following"
--- @include "each"
--- @include "put"
--- @include "entry"
local processing = KEYS[1]
local running = KEYS[2]
local sleeping = KEYS[3]
local to_archive = KEYS[4]
local stream = KEYS[5]
local now_ms = ARGV[1]

local now = clock(now_ms)
local asleep, wakes, due, entries = {}, {}, {}, {}

local function sleep(state, deltas, tx_id, fence, sleep_ms, switch, seen, heed_stop, lines,
  json, ...)
  local held, found, before, request, value =
    holds(state, fence, 'version', 'cancel', 'switch:' .. switch)
  if not held then
    return {'STALE', found}
  end
  if request and heed_stop == '1' then
    return {'STOP', request}
  end
  if switch ~= '' and value and tonumber(string.match(value, '^%d+')) > tonumber(seen) then
    return {'AWAKE', fields_of(state, true)}
  end
  local wake = integer(now + tonumber(sleep_ms))
  local version = following(before, now)
  write_state(state, deltas, json, version, 'status', 'sleeping', 'wakeTime', wake, ...)
  redis.call('HDEL', state, 'node', 'wakeSwitch')
  if switch ~= '' then
    redis.call('HSET', state, 'wakeSwitch', switch)
  end
  asleep[#asleep + 1] = tx_id
  put(wakes, wake, tx_id)
  put(due, now, tx_id)
  entry(entries, tx_id, version, before, fence, 'sleep', lines, wake .. ':' .. switch)
  return {'OK', wake, version}
end

local answers = each(KEYS, 6, 2, ARGV, 2, sleep)
if #asleep > 0 then
  redis.call('ZREM', processing, unpack(asleep))
  redis.call('SREM', running, unpack(asleep))
  redis.call('ZADD', sleeping, unpack(wakes))
  redis.call('ZADD', to_archive, unpack(due))
  redis.call('XADD', stream, '*', unpack(entries))
end
return answers
