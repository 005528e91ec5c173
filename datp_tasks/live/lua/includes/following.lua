-- The next fence or version. It follows the clock, so that it does not go backwards when Redis
-- loses its last writes. A text is made once: most of a vector get the same.
local last_previous, last_now, last_text
local function following(previous, now)
  if previous ~= last_previous or now ~= last_now then
    last_text = string.format('%.0f', math.max(tonumber(previous or 0) + 1, now))
    last_previous, last_now = previous, now
  end
  return last_text
end
