--[[
Decide whether a bell for a place needs a message: while one is on its way that no worker has
answered, what is due goes with it.

KEYS:
  ringing      string  there is a message on its way
  waiting      list    "<transaction> <sequence>", due at the place, without a message of its own
ARGV:
  ringing_ms   int     after so long without an answer the message counts as lost
  waiting_ms   int     how long the list is kept; these are hints, and the reconciler rings again
  waiting_max  int     a longer list, of a group without workers, is not made longer
  pairs        list    "<transaction> <sequence>" of each that is due
Returns:
  SEND         nothing; the caller must send a message for the pairs
  WAIT         how many wait for the message that is on its way
]]
local ringing = KEYS[1]
local waiting = KEYS[2]
local ringing_ms = ARGV[1]
local waiting_ms = ARGV[2]
local waiting_max = ARGV[3]
local pairs = 4

if redis.call('SET', ringing, '1', 'NX', 'PX', ringing_ms) then
  return {'SEND', ''}
end
local count = redis.call('LLEN', waiting)
if count >= tonumber(waiting_max) then
  return {'WAIT', count}
end
count = redis.call('RPUSH', waiting, unpack(ARGV, pairs, #ARGV))
redis.call('PEXPIRE', waiting, waiting_ms)
return {'WAIT', count}
