-- Name/value pairs from argument `first` to the last; an empty value removes the field.
local function write_fields(state, first)
  for index = first, #ARGV, 2 do
    if ARGV[index + 1] == '' then
      redis.call('HDEL', state, ARGV[index])
    else
      redis.call('HSET', state, ARGV[index], ARGV[index + 1])
    end
  end
end
