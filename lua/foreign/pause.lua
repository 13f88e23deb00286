#!lua flags=allow-oom
-- Pause one name of jobs, or with * the whole queue, until it is resumed or the time is over; active jobs go
-- on. If the format has such a pause, it is written there, so that foreign clients honour it and may end it.
-- Otherwise it binds only this engine's workers.
--
-- HEAD foreign/format
-- KEYS
--   paused  hash    the engine's own pauses
--   rest    zset    w:<name> by the time (ms) when its pause on the wire ends
--   stats   hash    counters
--   op      string  op:<op id>, record of this call: its reply
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   class         name of jobs, or *
--   length_ms     number: 0 = until it is resumed
-- REPLY srv_us, done | repeated | refused
-- USES <format>: wire_pause, wire_paused
--      core/call: administered, check_types
--      core/wake: append_events
--      foreign/format: format_now

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ rest }, { paused, stats }, {}, { op })

local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known } end
local keep = redis.call('HGET', stats, 'events')
local until_ms = length_ms > 0 and now_ms + length_ms or 0
-- A sweep ends it on the wire: the formats have no pauses with an end, or none that this engine can set.
if until_ms > 0 then
  redis.call('ZADD', rest, until_ms, 'w:' .. class)
else
  redis.call('ZREM', rest, 'w:' .. class)
end
wire_pause(format, class, until_ms)
if wire_paused(format, class) then
  redis.call('HDEL', paused, class)
else
  redis.call('HSET', paused, class, string.format('%d %d', until_ms, length_ms))
end
redis.call('SET', op, 'done', 'PXAT', not_after_ms + LATE_COPY_MS)
if keep then
  append_events(prefix .. 'events', { keep = keep,
    { 'paused', '', class, length_ms > 0 and string.format('%d', length_ms) or '' } })
end
return { srv_us, 'done' }
