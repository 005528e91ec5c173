-- Whose an entry of a line is: its last word.
local function owner_of(entry)
  return string.match(entry, '%S*$')
end
