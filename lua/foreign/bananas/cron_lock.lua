#!lua flags=allow-oom
-- The lock of a schedule as other schedulers of the keyspace use it: a string with the holder's token, which
-- expires with the lock. The fence and the number of the renewal, which they do not have, are kept in another
-- key.
--
-- KEYS
--   sweep  hash    state of the sweeps
--   lock   string  cron:lock:<schedule> or schedule_lock:<schedule>, the token of its holder
--   kept   hash    lock:cron:<schedule>: fence, renewal
--   op     string  op:<token>, record of this token: its last result
-- ARGV
--   now_ms        '' or the time of a test
--   action          acquire | extend | release
--   token         identity of the call, and the holder's token
--   counter       number: number of the renewal
--   ttl_ms        number: how long the lock is held
--   not_after_ms  number: server time after which this call is void
-- REPLY srv_us, held | released | taken | lost | refused, fence, until_ms
-- USES core/call: check_types, server_us

check_types({}, { sweep, kept }, {}, { lock, op })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local holder, was = redis.call('GET', lock), redis.call('GET', op)
local fence, renewal = unpack(redis.call('HMGET', kept, 'fence', 'renewal'))
fence, renewal = tonumber(fence or 0), tonumber(renewal or 0)
local until_ms = now_ms + math.max(redis.call('PTTL', lock), 0)
if action == 'release' then
  if holder ~= token then return { srv_us, was == 'released' and was or 'lost', 0, 0 } end
  redis.call('SET', op, 'released', 'PXAT', string.format('%d', now_ms + 30000))
  redis.call('DEL', lock)
  return { srv_us, 'released', 0, 0 }
end
if holder == token and renewal >= counter then return { srv_us, 'held', fence, until_ms } end
if action == 'extend' and holder ~= token or action == 'acquire' and was then
  return { srv_us, 'lost', 0, 0 }
end
if now_ms > not_after_ms then return { srv_us, 'refused', 0, 0 } end
if holder and holder ~= token then return { srv_us, 'taken', 0, until_ms } end
if action == 'acquire' then fence = math.max(fence + 1, now_ms) end
redis.call('HSET', kept, 'fence', string.format('%d', fence), 'renewal', counter)
redis.call('PEXPIREAT', kept, string.format('%d', now_ms + ttl_ms + 86400000))
redis.call('SET', op, 'held', 'PXAT', string.format('%d', math.max(not_after_ms, now_ms) + LATE_COPY_MS))
redis.call('SET', lock, token, 'PX', ttl_ms)
return { srv_us, 'held', fence, now_ms + ttl_ms }
