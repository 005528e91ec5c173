--[[
End a hop by queueing its transactions: for another node group, a message of their own, a return
to the parent pipeline, or because a stuck neighbour holds them up.

Moves:
  running -> queued
KEYS:
  queued       zset  transactions by time queued
  processing   zset  transactions by claim time
  running      set   transactions of this node
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
  snapshot     int   1 to have SQL get a copy of the state soon
  lines        json  the deltas in the JSON since the last script, one a line
  json         json  the whole state
  fields       pairs names and values of the hash
Returns:
  OK           sequence, version
  STALE        status found; another worker owns it
]]
--- @include "clock"
--- @include "holds"
--- @include "following"
--- @include "each"
--- @include "put"
--- @include "entry"
--- @include "write_state"
local queued = KEYS[1]
local processing = KEYS[2]
local running = KEYS[3]
local to_archive = KEYS[4]
local stream = KEYS[5]
local now_ms = ARGV[1]

local now = clock(now_ms)
local left, placed, due, entries = {}, {}, {}, {}

local function hand_over(state, deltas, tx_id, fence, snapshot, lines, json, ...)
  local held, found, before, last = holds(state, fence, 'version', 'sequence')
  if not held then
    return {'STALE', found}
  end
  local version = following(before, now)
  local sequence = tonumber(last) + 1
  write_state(state, deltas, json, version, 'status', 'queued', 'sequence', sequence, ...)
  redis.call('HDEL', state, 'node', 'wakeTime', 'wakeSwitch', 'problem')
  left[#left + 1] = tx_id
  put(placed, now, tx_id)
  if snapshot == '1' then
    put(due, now, tx_id)
  end
  entry(entries, tx_id, version, before, fence, 'queue', lines, '')
  return {'OK', sequence, version}
end

local answers = each(KEYS, 6, 2, ARGV, 2, hand_over)
if #left > 0 then
  redis.call('ZREM', processing, unpack(left))
  redis.call('SREM', running, unpack(left))
  redis.call('ZADD', queued, unpack(placed))
  redis.call('XADD', stream, '*', unpack(entries))
end
if #due > 0 then
  redis.call('ZADD', to_archive, unpack(due))
end
return answers
