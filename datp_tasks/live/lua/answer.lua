--[[
A worker has a message for a line: it takes along what waits there. If more waits than it may
take, the next messages are on their way already: the caller must send them.

KEYS:
  ringing      string  how many messages are on their way
  waiting      list    "<transaction> <sequence> <owner>", due, without a message of its own
  shares       hash    owner -> how many of the list are its own
  lines        set     lines in which something waits
ARGV:
  line         str     name of the line
  ringing_ms   int     after so long without an answer the next messages count as lost
  waiting_ms   int     how long the list is kept; these are hints, and the reconciler rings again
  take_max     int     how many the worker takes along
  next_max     int     how many a next message carries
  messages_max int     how many messages may be on their way
Returns:
  OK           those the worker takes, and for each next message those it must carry
]]
--- @include "take_from"
local ringing = KEYS[1]
local waiting = KEYS[2]
local shares = KEYS[3]
local lines = KEYS[4]
local line = ARGV[1]
local ringing_ms = ARGV[2]
local waiting_ms = ARGV[3]
local take_max = tonumber(ARGV[4])
local next_max = tonumber(ARGV[5])
local messages_max = tonumber(ARGV[6])

local under_way = 0
if messages_max > 1 or take_max == 0 then
  under_way = math.max(0, tonumber(redis.call('GET', ringing) or 1) - 1)
end
local taken, is_empty = take_from(waiting, shares, take_max)
local vectors = {}
while under_way < messages_max and not is_empty do
  local following
  following, is_empty = take_from(waiting, shares, next_max)
  if #following > 0 then
    under_way = under_way + 1
    vectors[#vectors + 1] = following
  end
end
if not is_empty then
  redis.call('PEXPIRE', waiting, waiting_ms)
  redis.call('PEXPIRE', shares, waiting_ms)
elseif #taken > 0 or #vectors > 0 then
  redis.call('DEL', shares)
  redis.call('SREM', lines, line)
end
if under_way > 0 then
  redis.call('SET', ringing, under_way, 'PX', ringing_ms)
else
  redis.call('DEL', ringing)
end
return {'OK', taken, vectors}
