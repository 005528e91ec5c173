-- Calls a function for each transaction of a vector, with its own keys and arguments. An error in
-- one becomes its answer: it must not stop the script before the lists of the others are written.
local function each(keys, first_key, own_keys, arguments, at, handle)
  local answers = {}
  for index = first_key, #keys, own_keys do
    local size = tonumber(arguments[at])
    local ok, answer
    if own_keys == 1 then
      ok, answer = pcall(handle, keys[index], unpack(arguments, at + 1, at + size))
    else
      ok, answer = pcall(handle, keys[index], keys[index + 1],
        unpack(arguments, at + 1, at + size))
    end
    if not ok then
      answer = {'ERROR', type(answer) == 'table' and answer.err or tostring(answer)}
    end
    answers[#answers + 1] = answer
    at = at + size + 1
  end
  return answers
end
