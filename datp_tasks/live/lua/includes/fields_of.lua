-- All fields, flat; the JSON is left out when the caller already holds it.
local function fields_of(state, holds_json)
  local all = redis.call('HGETALL', state)
  if holds_json then
    for index = 1, #all, 2 do
      if all[index] == 'state' then
        all[index + 1] = ''
      end
    end
  end
  return all
end
