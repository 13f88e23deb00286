-- How each call that changes a schedule begins: its checks, its time, and its reply where another copy was first or it comes too late.
-- Returns srv_us and that reply; nil where this copy shall do it. `keys`: sweep, cron, schedule, op.
-- helpers: check_types, server_us, administered
local function schedule_call(keys, given_ms, not_after_ms, helpers)
  helpers.check_types({ keys.cron }, { keys.sweep, keys.schedule }, {}, { keys.op })
  local srv_us = helpers.server_us(given_ms, keys.sweep)
  local known = helpers.administered(keys.op, not_after_ms, math.floor(srv_us / 1000))
  return srv_us, known and { srv_us, known, redis.call('GET', keys.op) or '' }
end
