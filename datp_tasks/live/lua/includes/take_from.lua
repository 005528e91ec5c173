-- Take entries from the front of a line, which makes room for their owners, the last word of
-- each; and whether the line is empty now. Of an empty one the caller deletes the shares.
local function take_from(waiting, shares, count)
  if count == 0 then
    return {}, false
  end
  local taken = redis.call('LPOP', waiting, count) or {}
  if #taken < count then
    return taken, true
  end
  local counts = {}
  for _, entry in ipairs(taken) do
    local owner = string.match(entry, '%S*$')
    counts[owner] = (counts[owner] or 0) + 1
  end
  for owner, of_owner in pairs(counts) do
    redis.call('HINCRBY', shares, owner, -of_owner)
  end
  return taken, false
end
