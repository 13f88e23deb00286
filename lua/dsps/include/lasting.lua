-- When keys end that others use as well: when this call wants it, or later where somebody keeps them for longer, whose messages and
-- cursors must not outlive the clock. Services may have different rules for one channel.
local function lasting(ends_ms, ...)
  for at = 1, select('#', ...) do ends_ms = math.max(ends_ms, redis.call('PEXPIRETIME', (select(at, ...)))) end
  return string.format('%d', ends_ms)
end
