-- The next fence or version. It follows the clock, so that it does not go backwards when Redis
-- loses its last writes. A text is made once for each previous one: most of a vector have the same.
local texts, of_now = {}, nil
local function following(previous, now)
  texts, of_now = now == of_now and texts or {}, now
  local last = previous or '0'
  texts[last] = texts[last] or string.format('%.0f', math.max(tonumber(last) + 1, now))
  return texts[last]
end
