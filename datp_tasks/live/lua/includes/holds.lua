-- True while the caller's claim is the last one; then the status found, and up to three fields that
-- are asked for.
local function holds(state, fence, ...)
  local found = redis.call('HMGET', state, 'status', 'fence', ...)
  return found[1] == 'running' and found[2] == fence, found[1] or 'UNKNOWN',
    found[3], found[4], found[5]
end
