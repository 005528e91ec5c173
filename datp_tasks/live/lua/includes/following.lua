-- The next fence or version. It follows the clock, so that it does not go backwards when Redis
-- loses its last writes. The text of a time is made once: most of a vector get the same.
local time_of_text, text_of_time
local function following(previous, now)
  local last = tonumber(previous or 0)
  if last >= now then
    return string.format('%.0f', last + 1)
  end
  if time_of_text ~= now then
    time_of_text, text_of_time = now, string.format('%.0f', now)
  end
  return text_of_time
end
