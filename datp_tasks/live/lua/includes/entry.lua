-- Adds an entry of the journal (transaction and text) to those that a vector writes together.
local function entry(entries, tx_id, version, before, fence, kind, lines, extra)
  if extra ~= '' and string.find(extra, '[\\\n]') then
    extra = string.gsub(extra, '[\\\n]', {['\\'] = '\\\\', ['\n'] = '\\n'})
  end
  local at = #entries
  entries[at + 1] = tx_id
  -- One expression is one new string; what it is made of gets none.
  if lines == '' then
    entries[at + 2] = '@' .. version .. ' ' .. before .. ' ' .. fence .. ' ' .. kind .. ' ' .. extra
  else
    entries[at + 2] = '@' .. version .. ' ' .. before .. ' ' .. fence .. ' ' .. kind .. ' ' .. extra
      .. '\n' .. lines
  end
end
