#!lua flags=allow-oom
-- Extend a lock. A lock that was lost cannot be extended.
--
-- HEAD core/call
-- KEYS
--   lock     hash    lock:<name>: token, fence, until_ms, length_ms, renewal
-- ARGV
--   token         of the holder
--   counter       counter of the holder's renewals: a call that was applied is not applied again
--   ttl_ms        number: how long the lock is held from now on
--   not_after_ms  number: server time after which this call is void
-- REPLY srv_us, held | lost | refused, fence, until_ms
-- USES core/call: check_types, server_us
--      core/lock: lock_read

check_types({}, { sweep, lock }, {}, {})
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local holder, fence, until_ms, _, renewal = lock_read(lock)
-- anchor: expired-lock-is-not-renewed
if holder ~= token or until_ms <= now_ms then return { srv_us, 'lost', 0, 0 } end
if renewal < tonumber(counter) then -- anchor: late-copy-of-a-lock-renewal-is-ignored
  if now_ms > not_after_ms then return { srv_us, 'refused', 0, 0 } end
  until_ms = now_ms + ttl_ms
  redis.call('HSET', lock, 'until_ms', until_ms, 'length_ms', ttl_ms, 'renewal', counter)
end
redis.call('PEXPIREAT', lock, until_ms + 86400000)
return { srv_us, 'held', fence, until_ms }
