--[[
The states are in SQL, in these very versions: those that have ended or sleep long may leave memory
in a while. Of one that goes on SQL has a copy, and nothing changes here.

Moves:
  final -> archived
  sleeping -> sleeping
  sleeping -> archived
KEYS:
  to_archive   zset  transactions by the time they may be archived
ARGV:
  now_ms       int   time, or empty for the server's
  final_ms     int   how long one that has ended stays for readers
  sleeping_ms  int   how long one that sleeps stays; if it wakes sooner, it does not leave
EACH_KEYS:
  state        hash  the transaction
  deltas       list  deltas since the last full JSON
EACH_ARGV:
  tx_id        str   transaction id
  version      int   that was written to SQL
  ended_as     str   its status, if it had ended and no delta followed its JSON; else empty
Returns:
  OK           1 if it leaves, else 0
  CHANGED      version found; it stays due
  UNKNOWN      no such transaction here
]]
--- @include "clock"
--- @include "ended"
--- @include "each"
local to_archive = KEYS[1]
local now_ms = ARGV[1]
local final_ms = ARGV[2]
local sleeping_ms = ARGV[3]

local now = clock(now_ms)
local settled = {}

local function confirm_archived(state, deltas, tx_id, version, ended_as)
  if ended_as ~= '' then
    -- Nearly all: what SQL has is what is here, so nothing else need be read.
    local found = redis.call('HMGET', state, 'version', 'status')
    if found[1] == version and found[2] == ended_as then
      settled[#settled + 1] = tx_id
      redis.call('PEXPIRE', state, final_ms)
      return {'OK', 1}
    end
  end
  local found_version, status, wake, json_version =
    unpack(redis.call('HMGET', state, 'version', 'status', 'wakeTime', 'jsonVersion'))
  if not status then
    settled[#settled + 1] = tx_id
    return {'UNKNOWN', ''}
  end
  local idle = ended(status) or status == 'sleeping' or status == 'in-doubt'
  if found_version ~= version and idle then
    return {'CHANGED', found_version}
  end
  settled[#settled + 1] = tx_id
  if ended(status) then
    redis.call('PEXPIRE', state, final_ms)
    -- One that ended because SQL said so may have some.
    if found_version ~= json_version then
      redis.call('PEXPIRE', deltas, final_ms)
    end
  elseif status == 'sleeping' and tonumber(wake) - now > tonumber(sleeping_ms) then
    redis.call('PEXPIRE', state, sleeping_ms)
  else
    return {'OK', 0}
  end
  return {'OK', 1}
end

local answers = each(KEYS, 2, 2, ARGV, 4, confirm_archived)
if #settled > 0 then
  redis.call('ZREM', to_archive, unpack(settled))
end
return answers
