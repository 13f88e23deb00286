#!lua flags=allow-oom
-- Release a lock, if this token still holds it. Its fence is kept for a day.
--
-- HEAD core/call
-- KEYS
--   lock     hash    lock:<name>: token, fence, until_ms, length_ms, renewal
--   op       string  op:<token>, record of this token: its last result
-- ARGV
--   token    of the holder
-- REPLY srv_us, released | lost, 0, 0
-- USES core/call: check_types, server_us

check_types({}, { sweep, lock }, {}, { op })
local srv_us = server_us(now_ms, sweep)
if redis.call('HGET', lock, 'token') == token then -- anchor: only-the-holder-releases-a-lock
  redis.call('SET', op, 'released', 'PXAT', math.floor(srv_us / 1000) + 30000)
  redis.call('HSET', lock, 'token', '', 'until_ms', 0)
  return { srv_us, 'released', 0, 0 }
end
return { srv_us, redis.call('GET', op) == 'released' and 'released' or 'lost', 0, 0 }
