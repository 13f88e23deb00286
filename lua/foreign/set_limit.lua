#!lua flags=allow-oom
-- Define, change or remove the limit of a name (rule 20). It counts the leases of claims from now on.
--
-- KEYS
--   sweep   hash    state of the sweeps
--   limits  hash    definitions of limits
--   op      string  op:<op id>, record that this call was done
-- ARGV
--   now_ms        '' or the time of a test
--   prefix        prefix of the engine's own keys
--   not_after_ms  number: server time after which this call is void
--   limit         n:<name>
--   definition    concurrency rate per_ms fixed|sliding, 0 where there is none; '' = remove it
-- REPLY srv_us, done | repeated | refused
-- USES core/call: administered, check_types, server_us
--      core/wake: wake_push

check_types({}, { sweep, limits }, { prefix .. 'wake' }, { op })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known } end
if definition == '' then
  redis.call('HDEL', limits, limit)
else
  redis.call('HSET', limits, limit, definition)
end
wake_push(prefix .. 'wake')
redis.call('SET', op, 'done', 'PXAT', not_after_ms + LATE_COPY_MS)
return { srv_us, 'done' }
