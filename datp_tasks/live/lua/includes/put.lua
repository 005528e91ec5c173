-- Adds a score and its member to those that one ZADD writes.
local function put(list, score, member)
  list[#list + 1] = score
  list[#list + 1] = member
end
