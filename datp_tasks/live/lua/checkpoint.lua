--[[
Record what running transactions have done so far, and open their next steps.

Moves:
  running -> running
KEYS:
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
  lines        json  the deltas, one a line
  fields       pairs names and values of the hash
Returns:
  OK           version, request to stop or empty, switch sequence
  STALE        status found; another worker owns it
]]
--- @include "clock"
--- @include "holds"
--- @include "following"
--- @include "each"
--- @include "put"
--- @include "entry"
local to_archive = KEYS[1]
local stream = KEYS[2]
local now_ms = ARGV[1]

local now = clock(now_ms)
local due, entries = {}, {}

local function checkpoint(state, deltas, tx_id, fence, snapshot, lines, ...)
  local held, found, before, request, switch_seq =
    holds(state, fence, 'version', 'cancel', 'switchSeq')
  if not held then
    return {'STALE', found}
  end
  local version = following(before, now)
  redis.call('HSET', state, 'version', version, ...)
  if lines ~= '' then
    redis.call('RPUSH', deltas, lines)
  end
  if snapshot == '1' then
    put(due, now, tx_id)
  end
  entry(entries, tx_id, version, before, fence, 'step', lines, '')
  return {'OK', version, request or '', switch_seq or '0'}
end

local answers = each(KEYS, 3, 2, ARGV, 2, checkpoint)
if #due > 0 then
  redis.call('ZADD', to_archive, unpack(due))
end
if #entries > 0 then
  redis.call('XADD', stream, '*', unpack(entries))
end
return answers
