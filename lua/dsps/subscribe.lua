#!lua
-- Create a subscriber at the channel's clock, and the channel if there is none; an existing subscriber stays
-- where it is. A second copy of the call returns the reply of the first, also when the subscriber was deleted
-- meanwhile.
--
-- KEYS
--   clock   string  clock of the last message
--   cursor  string  r.<subscriber>, the last acknowledged clock
--   meta    hash    state that these scripts keep of the channel
--   live    zset    clocks of living messages, each with itself as score
--   op      string  record of this call: its result
-- ARGV
--   subscriber    name
--   ttl_s         number: life of what is written
--   not_after_ms  number: server time after which this call is void
--   seen          latest clock that the caller has received, or ''
-- REPLY srv_us, created | exists | refused, clock, cursor, era, turned
-- USES dsps/clock: begin_anew, clock_of, expect_type, forget_expired, lasting, reckon, renew, server_us

local raw = expect_type(clock, 'string', redis.pcall('GET', clock))
local own = expect_type(cursor, 'string', redis.pcall('GET', cursor))
local kept = expect_type(meta, 'hash', redis.pcall('HMGET', meta, 'last', 'era'))
local done = expect_type(op, 'string', redis.pcall('GET', op))
expect_type(live, 'zset', redis.pcall('ZCARD', live))
local at, turned = reckon(clock_of(raw, clock), clock_of(kept[1], meta),
  clock_of(seen ~= '' and seen, 'seen'))
clock_of(own, cursor)
local srv_us, era = server_us(), clock_of(kept[2], meta) or 0
local now_ms = math.floor(srv_us / 1000)
if done or now_ms > not_after_ms then return { srv_us, done or 'refused', raw, own, era, 0 } end

local ends_ms = string.format('%d', now_ms + ttl_s * 1000)
local channel_ends_ms = lasting(now_ms + ttl_s * 1000, clock, meta)
local last = string.format('%d', at or 0)
if turned then era = era + 1 end
-- The clock first: a call that is cut off must not look like a channel whose clock was lost.
if not at then redis.call('SET', clock, last, 'PXAT', channel_ends_ms) end
if turned or not kept[1] then
  begin_anew(meta, last, era)
elseif kept[1] ~= last then
  redis.call('HSET', meta, 'last', last)
end
redis.call('SET', clock, last, 'PXAT', channel_ends_ms)
local result = own and 'exists' or 'created'
if not own then
  own = last
  if era > 0 then redis.call('HSET', meta, 'r.' .. subscriber, string.format('%d', era)) end
  redis.call('SET', cursor, own, 'PXAT', ends_ms)
  if era > 0 then forget_expired(meta, string.sub(cursor, 1, -#subscriber - 3)) end
end
renew(channel_ends_ms, meta, live)
redis.call('SET', op, result, 'PXAT', string.format('%d', not_after_ms + LATE_COPY_MS))
return { srv_us, result, last, own, era, turned and 1 or 0 }
