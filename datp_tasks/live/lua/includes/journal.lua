-- One more entry of the journal: what led from one version to the next, and who did it. All
-- entries have the same fields, which streams store only once.
local function journal(stream, tx_id, version, before, fence, kind, lines, extra)
  redis.call('XADD', stream, '*', 't', tx_id, 'v', version, 'p', before, 'f', fence,
    'k', kind, 'd', lines, 'x', extra)
end
