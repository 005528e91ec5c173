-- All fields, flat; the JSON is left out when the caller already holds that version.
local function fields_of(state, held_version)
  local all = redis.call('HGETALL', state)
  local skip = held_version ~= '' and redis.call('HGET', state, 'jsonVersion') == held_version
  if skip then
    for index = 1, #all, 2 do
      if all[index] == 'state' then
        all[index + 1] = ''
      end
    end
  end
  return all
end
