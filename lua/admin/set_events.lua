#!lua flags=allow-oom
-- Keep the events of the queue from now on; with keep 0 stop and delete those that were kept.
--
-- HEAD core/call
-- KEYS
--   stats    hash    counters, and how many events are kept
--   events   stream  events of the queue
--   op       string  op:<op id>, record that this call was done
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   keep          about how many
-- REPLY srv_us, done | repeated | refused
-- USES core/call: administered, check_types, server_us

check_types({}, { sweep, stats }, {}, { op })
redis.call('XLEN', events)
local srv_us = server_us(now_ms, sweep)
local known = administered(op, not_after_ms, math.floor(srv_us / 1000))
if known then return { srv_us, known } end
if keep == '0' then
  redis.call('HDEL', stats, 'events')
  redis.call('UNLINK', events)
else
  redis.call('HSET', stats, 'events', keep)
end
redis.call('SET', op, 'done', 'PXAT', not_after_ms + LATE_COPY_MS)
return { srv_us, 'done' }
