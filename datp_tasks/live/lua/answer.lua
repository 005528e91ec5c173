--[[
A worker has the message for a place: it takes along what waits there. If more waits than it may
take, the next message is on its way already: the caller must send it.

KEYS:
  ringing      string  there is a message on its way
  waiting      list    "<transaction> <sequence>", due at the place, without a message of its own
ARGV:
  take_max     int     how many the worker takes along
  next_max     int     how many the next message carries
  ringing_ms   int     after so long without an answer the next message counts as lost
Returns:
  OK           those the worker takes, those the next message must carry
]]
local ringing = KEYS[1]
local waiting = KEYS[2]
local take_max = tonumber(ARGV[1])
local next_max = ARGV[2]
local ringing_ms = ARGV[3]

redis.call('DEL', ringing)
local taken = take_max > 0 and redis.call('LPOP', waiting, take_max) or {}
local following = redis.call('LPOP', waiting, next_max) or {}
if #following > 0 then
  redis.call('SET', ringing, '1', 'PX', ringing_ms)
end
return {'OK', taken, following}
