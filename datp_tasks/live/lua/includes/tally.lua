-- One more of something, among those that a vector counts together.
local function tally(counted, what, group, pipeline, owner)
  local name = what .. '|' .. group .. '|' .. pipeline .. '|' .. owner
  counted[name] = (counted[name] or 0) + 1
end
