-- Take entries from the front of a line, which makes room for their owners: the
-- last word of each.
local function take_from(waiting, shares, count)
  local taken = count > 0 and redis.call('LPOP', waiting, count) or {}
  for _, entry in ipairs(taken) do
    redis.call('HINCRBY', shares, string.match(entry, '%S*$'), -1)
  end
  return taken
end
