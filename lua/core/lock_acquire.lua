#!lua
-- Take a lock that is free. Its fence rises with each holder, as that of a job does (rule 6).
--
-- HEAD core/call
-- KEYS
--   lock     hash    lock:<name>: token, fence, until_ms, length_ms, renewal
--   op       string  op:<token>, record of this token: its last result
-- ARGV
--   token         identity of the call, and the holder's token
--   ttl_ms        number: how long the lock is held
--   not_after_ms  number: server time after which this call is void
-- REPLY srv_us, held | taken | lost | refused, fence, until_ms
-- USES core/call: check_types, server_us
--      core/lock: lock_read

check_types({}, { sweep, lock }, {}, { op })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local holder, fence, until_ms, length_ms = lock_read(lock)
local held = holder and holder ~= '' and until_ms > now_ms -- anchor: lock-is-held-until-it-runs-out
if held and holder == token then
  -- Another copy of this call has taken the lock; if it was cut off, these two writes were still to be done.
  redis.call('PEXPIREAT', lock, until_ms + 86400000)
  redis.call('SET', op, 'held', 'PXAT', not_after_ms + LATE_COPY_MS)
  return { srv_us, 'held', fence, until_ms }
end
-- anchor: late-copy-of-a-released-lock-is-lost
if redis.call('EXISTS', op) == 1 then return { srv_us, 'lost', 0, 0 } end
if now_ms > not_after_ms then return { srv_us, 'refused', 0, 0 } end -- anchor: late-lock-is-void
if held and until_ms > now_ms + length_ms then
  -- The clock stepped back: the lock is held for its length from now on, once (rule 10).
  until_ms = now_ms + length_ms
  redis.call('HSET', lock, 'until_ms', until_ms)
end
if held then return { srv_us, 'taken', 0, until_ms } end
fence, until_ms = math.max(fence + 1, now_ms), now_ms + ttl_ms -- anchor: lock-fences-only-grow
-- anchor: lock-lasts-as-asked
redis.call('HSET', lock, 'token', token, 'fence', string.format('%d', fence), 'until_ms', until_ms, 'length_ms', ttl_ms, 'renewal', 0)
redis.call('PEXPIREAT', lock, until_ms + 86400000)
redis.call('SET', op, 'held', 'PXAT', not_after_ms + LATE_COPY_MS)
return { srv_us, 'held', fence, until_ms }
