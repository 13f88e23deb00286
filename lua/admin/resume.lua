#!lua flags=allow-oom
-- End the pause of one class, or with * that of the whole queue.
--
-- HEAD core/call
-- KEYS
--   paused   hash    pauses
--   stats    hash    counters
--   op       string  op:<op id>, record of this call: 1 = there was such a pause
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   class         class, or *
-- REPLY srv_us, done | repeated | refused, 1 = there was such a pause
-- USES core/call: administered, check_types, server_us
--      core/wake: append_events, wake_classes, wake_name
--      looks/looks: pauses_on

check_types({}, { sweep, paused, stats }, {}, { op })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known, tonumber(redis.call('GET', op) or 0) or 1 } end
local was_on = #pauses_on({ class, redis.call('HGET', paused, class) }, now_ms) / 2
local keep = redis.call('HGET', stats, 'events')
redis.call('HDEL', paused, class)
-- With * those of a part of the classes, if there are many, and the sweeps the others'.
-- anchor: resumed-class-leaves-a-marker
if class == '*' then wake_classes(prefix, now_ms) else wake_name(prefix, class, now_ms) end
redis.call('SET', op, string.format('%d', was_on), 'PXAT', not_after_ms + LATE_COPY_MS)
if keep then append_events(prefix .. 'events', { keep = keep, { 'resumed', '', class } }) end
return { srv_us, 'done', was_on }
