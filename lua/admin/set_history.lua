#!lua flags=allow-oom
-- Keep how the jobs of the queue end from now on; with the setting '' stop, and delete what was kept.
--
-- HEAD core/call
-- KEYS
--   stats    hash    counters, and the setting of the history
--   history  zset    how jobs have ended, by time (ms)
--   op       string  op:<op id>, record that this call was done
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   setting       entries, age in ms (0 = any), the longest payload to keep (0 = none), then names of jobs
--                 if not all; '' = none
-- REPLY srv_us, done | repeated | refused
-- USES core/call: administered, check_types, server_us

check_types({ history }, { sweep, stats }, {}, { op })
local srv_us = server_us(now_ms, sweep)
local known = administered(op, not_after_ms, math.floor(srv_us / 1000))
if known then return { srv_us, known } end
if setting == '' then
  redis.call('HDEL', stats, 'history')
  redis.call('UNLINK', history)
else
  redis.call('HSET', stats, 'history', setting)
end
redis.call('SET', op, 'done', 'PXAT', not_after_ms + LATE_COPY_MS)
return { srv_us, 'done' }
