#!lua flags=allow-oom
-- The updates for a worker, read when the version has changed: the classes with targets, and the settings of
-- this worker. The marker that the worker popped is pushed again, for the next worker that knows the same
-- version.
--
-- HEAD core/call
-- KEYS
--   classes  hash    class -> its target
--   settings hash    version; c:<worker> or c:* -> handlers at once; p:<worker> -> until_ms (0 = until it is
--            resumed), length in ms
--   news     list    news:<version>, a marker for the workers that know that version
-- ARGV
--   version  the version that the worker knows
--   worker   its name
-- REPLY srv_us, version, handlers at once (0 = as it was started), pause (-1 none, 0 until it is resumed, or
--       ms left), class, target, ...
-- USES core/call: check_types, server_us

check_types({}, { sweep, classes, settings }, { news })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local set = redis.call('HMGET', settings, 'version', 'c:' .. worker, 'c:*', 'p:' .. worker)
local targets, paused = {}, -1
local flat = redis.call('HGETALL', classes)
for at = 1, #flat, 2 do
  if flat[at + 1] ~= '' then
    targets[#targets + 1] = flat[at]
    targets[#targets + 1] = flat[at + 1]
  end
end
if set[4] then
  local until_ms, length_ms = string.match(set[4], '^(%d+) (%d+)$')
  -- If the clock stepped back, a pause that ends too far ahead lasts as long as its own length (rule 10).
  if until_ms == '0' then paused = 0 end
  if tonumber(until_ms) > now_ms then paused = math.min(tonumber(until_ms) - now_ms, tonumber(length_ms)) end
end
if (set[1] or '0') ~= version then
  if redis.call('LLEN', news) == 0 then redis.call('RPUSH', news, '1') end
  redis.call('PEXPIREAT', news, now_ms + 60000)
end
return { srv_us, tonumber(set[1] or 0), tonumber(set[2] or set[3] or 0), paused, targets }
