-- Let keys live until this time. What we know of a channel ends with its clock, so that neither is taken for a loss of the other.
local function renew(ends_ms, ...)
  for at = 1, select('#', ...) do redis.call('PEXPIREAT', (select(at, ...)), ends_ms) end
end
