#!lua flags=allow-oom
-- End the pause of one name of jobs, or with * that of the whole queue, on the wire and in the engine's own
-- keys.
--
-- HEAD foreign/format
-- KEYS
--   paused  hash    the engine's own pauses
--   rest    zset    w:<name> by the time (ms) when its pause on the wire ends
--   stats   hash    counters
--   op      string  op:<op id>, record of this call: 1 = there was such a pause
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   class         name of jobs, or *
-- REPLY srv_us, done | repeated | refused, 1 = there was such a pause
-- USES <format>: wire_paused, wire_resume
--      core/call: administered, check_types
--      core/wake: append_events, wake_push
--      foreign/format: format_now
--      looks/looks: pauses_on

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ rest }, { paused, stats }, { prefix .. 'wake' }, { op })

local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known, tonumber(redis.call('GET', op) or 0) or 1 } end
local on_wire = wire_paused(format, class)
local was_on = (on_wire or pauses_on({ class, redis.call('HGET', paused, class) }, now_ms)[1]) and 1 or 0
local keep = redis.call('HGET', stats, 'events')
redis.call('HDEL', paused, class)
wire_resume(format, class)
redis.call('ZREM', rest, 'w:' .. class)
wake_push(prefix .. 'wake')
redis.call('SET', op, string.format('%d', was_on), 'PXAT', not_after_ms + LATE_COPY_MS)
if keep then append_events(prefix .. 'events', { keep = keep, { 'resumed', '', class } }) end
return { srv_us, 'done', was_on }
