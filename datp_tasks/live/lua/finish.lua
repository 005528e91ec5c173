--[[
Follow the record: SQL has committed final statuses, so the live transactions end too.

Moves:
  running -> final
  (any) -> final
KEYS:
  queued       zset    transactions by time queued
  processing   zset    transactions by claim time
  running      set     transactions of this node
  sleeping     zset    transactions by wake time
  exception    zset    transactions in doubt
  to_archive   zset    transactions by the time they may be archived
  stream       stream  the journal on its way to SQL
  counts       hash    what happened lately, for the meter
ARGV:
  now_ms       int     time, or empty for the server's
  archive_ms   int     delay before archiving
  channel      str     where to tell about it
EACH_KEYS:
  state        hash    the transaction
  deltas       list    deltas since the last full JSON
EACH_ARGV:
  tx_id        str     transaction id
  fence        int     of the claim that SQL accepted, or empty to follow SQL in any case
  status       str     the final status
  lines        json    the deltas in the JSON since the last script, one a line
  json         json    the whole state, or empty to keep what is there
Returns:
  OK           version
  FINAL        status found; it had ended before
  STALE        status found; another worker owns it
  UNKNOWN      no such transaction here
]]
--- @include "clock"
--- @include "ended"
--- @include "following"
--- @include "write_state"
--- @include "each"
--- @include "put"
--- @include "entry"
--- @include "tally"
--- @include "count_all"
local queued = KEYS[1]
local processing = KEYS[2]
local running = KEYS[3]
local sleeping = KEYS[4]
local exception = KEYS[5]
local to_archive = KEYS[6]
local stream = KEYS[7]
local counts = KEYS[8]
local now_ms = ARGV[1]
local archive_ms = ARGV[2]
local channel = ARGV[3]

local now = clock(now_ms)
local score = string.format('%.0f', now + archive_ms)
local over, unknown, due, entries, news, counted = {}, {}, {}, {}, {}, {}

local function finish(state, deltas, tx_id, fence, status, lines, json)
  local found, last, before, group, pipeline, owner = unpack(redis.call('HMGET', state,
    'status', 'fence', 'version', 'group', 'pipeline', 'owner'))
  if found == 'running' and (fence == '' or fence == last) then
    over[#over + 1] = tx_id
  elseif not found then
    unknown[#unknown + 1] = tx_id
    return {'UNKNOWN', ''}
  elseif ended(found) then
    over[#over + 1] = tx_id
    return {'FINAL', found}
  elseif fence ~= '' then
    return {'STALE', found}
  else
    local lists = {queued = queued, sleeping = sleeping, ['in-doubt'] = exception}
    redis.call('ZREM', lists[found], tx_id)
    redis.call('PERSIST', state)
  end
  local version = following(before, now)
  if json ~= '' then
    write_state(state, deltas, json, version, 'status', status)
  else
    redis.call('HSET', state, 'status', status, 'version', version)
  end
  redis.call('HDEL', state, 'node', 'wakeTime', 'wakeSwitch', 'cancel', 'problem', 'stepType')
  put(due, score, tx_id)
  entry(entries, tx_id, version, before, last, 'final', lines, status)
  tally(counted, status, group, pipeline, owner)
  news[#news + 1] = 'completed:' .. tx_id .. ':' .. status
  return {'OK', version}
end

local answers = each(KEYS, 9, 2, ARGV, 4, finish)
if #over > 0 then
  redis.call('ZREM', processing, unpack(over))
  redis.call('SREM', running, unpack(over))
end
if #unknown > 0 then
  redis.call('SREM', running, unpack(unknown))
  redis.call('ZREM', sleeping, unpack(unknown))
end
if #due > 0 then
  redis.call('ZADD', to_archive, unpack(due))
  redis.call('XADD', stream, '*', unpack(entries))
  redis.call('PUBLISH', channel, table.concat(news, '\n'))
  count_all(counts, now, counted)
end
return answers
