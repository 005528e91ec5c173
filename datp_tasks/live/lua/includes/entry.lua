-- Adds an entry of the journal (transaction and text) to those that a vector writes together.
local function entry(entries, tx_id, version, before, fence, kind, lines, extra)
  if string.find(extra, '[\\\n]') then
    extra = string.gsub(extra, '[\\\n]', {['\\'] = '\\\\', ['\n'] = '\\n'})
  end
  local head = table.concat({'@' .. version, before, fence, kind, extra}, ' ')
  entries[#entries + 1] = tx_id
  entries[#entries + 1] = lines == '' and head or head .. '\n' .. lines
end
