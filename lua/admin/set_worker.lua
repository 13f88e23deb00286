#!lua flags=allow-oom
-- Change or remove a setting of a worker (rule 7): how many handlers it runs at once, or a pause. Workers
-- that wait for work learn of it at once, the others at their next sweep.
--
-- HEAD core/call
-- KEYS
--   settings hash    version; c:<worker> or c:* -> handlers at once; p:<worker> -> until_ms (0 = until it is
--            resumed), length in ms
--   op       string  op:<op id>, record that this call was done
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   field         c:<worker>, c:* or p:<worker>
--   value         handlers at once or length of the pause in ms (0 = until it is resumed); '' = remove it
-- REPLY srv_us, done | repeated | refused
-- USES core/call: administered, check_types, server_us
--      core/wake: notify_settings

check_types({}, { sweep, settings }, {})
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known } end
-- Settings of workers that are gone are not detected and stay, so their number is bounded.
if value ~= '' and redis.call('HLEN', settings) >= 10000 and redis.call('HEXISTS', settings, field) == 0 then
  return redis.error_reply('IRONCLAIM settings of more than 10000 workers')
end
if string.sub(field, 1, 2) == 'p:' and value ~= '' then
  value = string.format('%d %s', value == '0' and 0 or now_ms + tonumber(value), value)
end
if value == '' then redis.call('HDEL', settings, field) else redis.call('HSET', settings, field, value) end
notify_settings(prefix, now_ms)
redis.call('SET', op, 'done', 'PXAT', not_after_ms + LATE_COPY_MS)
return { srv_us, 'done' }
