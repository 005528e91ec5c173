--[[
Take a transaction from a node that is gone and queue it again. SQL has the new fence already, so
the old worker is refused everywhere should it wake up.

Moves:
  running -> queued
KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
  queued       zset  transactions by time queued
  processing   zset  transactions by claim time
  running      set   transactions of the node that is gone
  stream       stream  the journal on its way to SQL
ARGV:
  now_ms       int   time, or empty for the server's
  tx_id        str   transaction id
  fence        int   of the claim that is taken over
  new_fence    int   as written to SQL
  delta        json  that says so
Returns:
  OK           bell
  STALE        status found; another process was quicker
]]
--- @include "clock"
--- @include "holds"
--- @include "following"
--- @include "journal"
--- @include "enqueue"
--- @include "bell"
local state = KEYS[1]
local deltas = KEYS[2]
local queued = KEYS[3]
local processing = KEYS[4]
local running = KEYS[5]
local stream = KEYS[6]
local now_ms = ARGV[1]
local tx_id = ARGV[2]
local fence = ARGV[3]
local new_fence = ARGV[4]
local delta = ARGV[5]

local held, found, before = holds(state, fence, 'version')
if not held then
  return {'STALE', found}
end
redis.call('SREM', running, tx_id)
redis.call('RPUSH', deltas, delta)
local now = clock(now_ms)
local version = following(before, now)
redis.call('HSET', state, 'fence', new_fence, 'priority', 'out', 'version', version)
redis.call('ZREM', processing, tx_id)
journal(stream, tx_id, version, before, new_fence, 'crash', delta, '')
enqueue(state, queued, tx_id, now)
return {'OK', bell(state)}
