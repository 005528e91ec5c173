-- True for a final status: whatever is none of those that go on.
local function ended(status)
  return status ~= 'queued' and status ~= 'running' and status ~= 'sleeping' and status ~= 'in-doubt'
end
