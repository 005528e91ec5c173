-- Adds an entry of the journal (transaction and text) to those that a vector writes together.
local escaped = {}
local function entry(entries, tx_id, version, before, fence, kind, lines, extra)
  local at, said = #entries, escaped[extra]
  if not said then
    said = string.gsub(extra, '[\\\n]', {['\\'] = '\\\\', ['\n'] = '\\n'})
    escaped[extra] = said
  end
  entries[at + 1] = tx_id
  -- One expression is one new string; what it is made of gets none.
  entries[at + 2] = '@' .. version .. ' ' .. before .. ' ' .. fence .. ' ' .. kind .. ' ' .. said
    .. (lines == '' and '' or '\n') .. lines
end
