-- True while the caller's claim is the last one; then the status found and the fields asked for.
local function holds(state, fence, ...)
  local found = redis.call('HMGET', state, 'status', 'fence', ...)
  if not found[1] then
    return false, 'UNKNOWN'
  end
  return found[1] == 'running' and found[2] == fence, found[1], unpack(found, 3, #found)
end
