-- Name/value pairs from argument `first` to the last.
local function write_fields(state, first)
  if #ARGV > first then
    redis.call('HSET', state, unpack(ARGV, first, #ARGV))
  end
end
