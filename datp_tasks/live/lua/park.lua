--[[
Park running transactions whose next move only a person or a later probe can decide.

Moves:
  running -> in-doubt
KEYS:
  processing   zset  transactions by claim time
  running      set   transactions of this node
  exception    zset  transactions in doubt
  to_archive   zset  transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  channel      str   where to tell about it
EACH_KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
EACH_ARGV:
  tx_id        str   transaction id
  fence        int   of the claim
  problem      str   why it is parked, for people
  lines        json  the deltas in the JSON since the last script, one a line
  json         json  the whole state
Returns:
  OK           version
  STALE        status found; another worker owns it
]]
--- @include "clock"
--- @include "holds"
--- @include "write_state"
--- @include "following"
--- @include "each"
--- @include "put"
--- @include "entry"
local processing = KEYS[1]
local running = KEYS[2]
local exception = KEYS[3]
local to_archive = KEYS[4]
local stream = KEYS[5]
local now_ms = ARGV[1]
local channel = ARGV[2]

local now = clock(now_ms)
local parked, times, entries, news = {}, {}, {}, {}

local function park(state, deltas, tx_id, fence, problem, lines, json)
  local held, found, before = holds(state, fence, 'version')
  if not held then
    return {'STALE', found}
  end
  local version = following(before, now)
  write_state(state, deltas, json, version, 'status', 'in-doubt', 'problem', problem)
  redis.call('HDEL', state, 'node')
  parked[#parked + 1] = tx_id
  put(times, now, tx_id)
  entry(entries, tx_id, version, before, fence, 'park', lines, problem)
  news[#news + 1] = 'parked:' .. tx_id .. ':in-doubt'
  return {'OK', version}
end

local answers = each(KEYS, 6, 2, ARGV, 3, park)
if #parked > 0 then
  redis.call('ZREM', processing, unpack(parked))
  redis.call('SREM', running, unpack(parked))
  redis.call('ZADD', exception, unpack(times))
  redis.call('ZADD', to_archive, unpack(times))
  redis.call('XADD', stream, '*', unpack(entries))
  redis.call('PUBLISH', channel, table.concat(news, '\n'))
end
return answers
