-- The injected time, or Redis' own: no worker's wall clock decides anything.
local function clock(given_ms)
  if given_ms ~= '' then
    return tonumber(given_ms)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
