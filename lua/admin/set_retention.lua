#!lua flags=allow-oom
-- Set how many ended jobs a queue keeps and for how long; the sweeps remove the others.
--
-- HEAD core/call
-- KEYS
--   retention hash    bounds of the ended jobs that are kept
--   op        string  op:<op id>, record that this call was done
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   items         2 for each item: field, value
-- REPLY srv_us, done | repeated | refused
-- USES core/call: administered, check_types, server_us

check_types({}, { sweep, retention }, {})
local srv_us = server_us(now_ms, sweep)
local known = administered(op, not_after_ms, math.floor(srv_us / 1000))
if known then return { srv_us, known } end
redis.call('HSET', retention, unpack(ARGV, 4))
redis.call('SET', op, 'done', 'PXAT', not_after_ms + LATE_COPY_MS)
return { srv_us, 'done' }
