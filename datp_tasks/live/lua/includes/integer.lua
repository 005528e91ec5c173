-- Lua would print a large number as 1.8e+12.
local function integer(number)
  return string.format('%.0f', number)
end
