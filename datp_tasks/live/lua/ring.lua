--[[
Decide whether a bell for a line needs a message: while one is on its way that no worker has
answered, what is due goes with it. No owner may have more than its share of the line. Where the
queues are in this Redis, the message comes along and is put into its queue here.

KEYS:
  ringing      string  how many messages are on their way
  waiting      list    "<transaction> <sequence> <owner>", due, without a message of its own
  shares       hash    owner -> how many of the list are its own
  lines        set     lines in which something waits
  queue        list    messages to the node group; never written to without a message
ARGV:
  line         str     name of the line
  ringing_ms   int     after so long without an answer the message counts as lost
  waiting_ms   int     how long the list is kept; these are hints, and the reconciler rings again
  owner_max    int     how many of an owner may wait in the list
  message      json    for the first of the pairs, or empty
  pairs        list    "<transaction> <sequence> <owner>" of each that is due
Returns:
  SEND         nothing; the caller must send a message for the pairs
  SENT         nothing; the message is in its queue
  WAIT         those for which there is no room
]]
local ringing = KEYS[1]
local waiting = KEYS[2]
local shares = KEYS[3]
local lines = KEYS[4]
local queue = KEYS[5]
local line = ARGV[1]
local ringing_ms = ARGV[2]
local waiting_ms = ARGV[3]
local owner_max = tonumber(ARGV[4])
local message = ARGV[5]
local pairs = 6

if redis.call('SET', ringing, '1', 'NX', 'PX', ringing_ms) then
  if message == '' then
    return {'SEND', ''}
  end
  redis.call('LPUSH', queue, message)
  return {'SENT', ''}
end
-- All of an owner at once: a vector is mostly of one owner, and then costs one command.
local entries = {unpack(ARGV, pairs, #ARGV)}
local wanted, owners, each_once = {}, {}, {}
for place, entry in ipairs(entries) do
  local owner = string.match(entry, '%S*$')
  owners[place] = owner
  if not wanted[owner] then
    each_once[#each_once + 1] = owner
  end
  wanted[owner] = (wanted[owner] or 0) + 1
end
local room = {}
for _, owner in ipairs(each_once) do
  local count = wanted[owner]
  local excess = redis.call('HINCRBY', shares, owner, count) - owner_max
  excess = math.max(0, math.min(count, excess))
  if excess > 0 then
    redis.call('HINCRBY', shares, owner, -excess)
  end
  room[owner] = count - excess
end
local placed, refused = {}, {}
for place, entry in ipairs(entries) do
  local owner = owners[place]
  local into = room[owner] > 0 and placed or refused
  room[owner] = room[owner] - 1
  into[#into + 1] = entry
end
-- A line that goes on is kept by the worker that leaves something in it.
if #placed > 0 and redis.call('RPUSH', waiting, unpack(placed)) == #placed then
  redis.call('PEXPIRE', waiting, waiting_ms)
  redis.call('PEXPIRE', shares, waiting_ms)
  redis.call('SADD', lines, line)
end
return {'WAIT', refused}
