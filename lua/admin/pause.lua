#!lua flags=allow-oom
-- Pause one class, or with * the whole queue. No job of it is claimed until it is resumed or the time is
-- over. Active jobs go on.
--
-- HEAD core/call
-- KEYS
--   paused   hash    pauses
--   rest     zset    lanes and classes by the time (ms) at which their rate window or pause ends
--   stats    hash    counters
--   op       string  op:<op id>, record that this call was done
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   class         class, or *
--   length_ms     number: 0 = until it is resumed
-- REPLY srv_us, done | repeated | refused
-- USES core/call: administered, check_types, server_us
--      core/wake: append_events

check_types({ rest }, { sweep, paused, stats }, {}, { op })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known } end
local keep = redis.call('HGET', stats, 'events')
local until_ms = length_ms > 0 and now_ms + length_ms or 0
if until_ms > 0 then redis.call('ZADD', rest, until_ms, 'w:' .. class) end
redis.call('HSET', paused, class, string.format('%d %d', until_ms, length_ms))
redis.call('SET', op, 'done', 'PXAT', not_after_ms + LATE_COPY_MS)
if keep then
  append_events(prefix .. 'events', { keep = keep,
    { 'paused', '', class, length_ms > 0 and string.format('%d', length_ms) or '' } })
end
return { srv_us, 'done' }
