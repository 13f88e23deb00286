#!lua flags=allow-oom
-- Define, change or remove a limit (rule 20). It counts the leases of claims from now on. Lanes that wait for
-- it come back: in this call 100 that wait for limit slots and, for k:*, a part of the resting ones. The next
-- sweeps bring back the others.
--
-- HEAD core/call
-- KEYS
--   limits   hash    definitions of limits
--   stats    hash    counters
--   blocking zset    limits with parked lanes by the time (ms) of their last check
--   op       string  op:<op id>, record that this call was done
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   limit         n:<name>, k:<key>, or k:* for every key without its own
--   definition    concurrency rate per_ms fixed|sliding, 0 where there is none; '' = remove it
-- REPLY srv_us, done | repeated | refused
-- USES core/call: administered, check_types, server_us
--      core/lane: lanes_back
--      core/limit: mend_limits
--      core/wake: wake_name, wake_push

check_types({ blocking }, { sweep, limits, stats }, {}, { op })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known } end
-- A change of k:* concerns all lanes that wait for limit slots or rest: the sweeps check all of them again
-- (mend_limits).
if limit == 'k:*' then redis.call('HSET', sweep, 'limits_changed_ms', now_ms + 1, 'rests_from_ms', 0) end
if definition == '' then
  redis.call('HDEL', limits, limit)
else
  redis.call('HSET', limits, limit, definition)
end
local virtual_time, wakes = tonumber(redis.call('HGET', stats, 'turn') or 0), {}
if limit == 'k:*' then
  mend_limits(prefix, sweep, now_ms, virtual_time, wakes)
elseif string.sub(limit, 1, 2) == 'k:' then
  lanes_back(prefix, string.sub(limit, 3), virtual_time, wakes)
end
if string.sub(limit, 1, 2) == 'n:' then wake_name(prefix, string.sub(limit, 3), now_ms) end
for list in pairs(wakes) do wake_push(list) end
redis.call('SET', op, 'done', 'PXAT', not_after_ms + LATE_COPY_MS)
return { srv_us, 'done' }
