-- The next fence or version. It follows the clock, so that it does not go backwards when Redis
-- loses its last writes. A text is made once: most of a vector get the same.
local texts = {}
local function following(previous, now)
  local number = math.max(tonumber(previous or 0) + 1, now)
  texts[number] = texts[number] or string.format('%.0f', number)
  return texts[number]
end
