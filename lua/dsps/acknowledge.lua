#!lua flags=allow-oom
-- Move a subscriber's cursor to a later clock, at most to that of the channel. Any other receipt is stale: it
-- changes nothing and renews no key; so a second copy of the call is stale. A receipt from before a restore
-- is stale as well: its clocks may have been assigned again.
--
-- KEYS
--   clock   string  clock of the last message
--   cursor  string  r.<subscriber>, the last acknowledged clock
--   meta    hash    state that these scripts keep of the channel
--   live    zset    clocks of living messages, each with itself as score
--   proof   string  body of the message that the fetch of the receipt ended with
-- ARGV
--   subscriber  name
--   to          clock of the receipt
--   ttl_s       number: life of what is renewed
--   given_era   era of the receipt, or ''
--   seen        latest clock that the caller has received, or ''
--   proof_ms    number: when that message expires, as the fetch returned it: -2 where there was none; or ''
-- REPLY srv_us, OK | stale, clock, cursor, era, turned, beyond
--    or srv_us, channel-not-found | subscription-not-found
-- USES dsps/clock: begin_anew, clock_after, clock_of, expect_type, lasting, reckon, renew, server_us

local was = clock_of(expect_type(clock, 'string', redis.pcall('GET', clock)), clock)
local own = clock_of(expect_type(cursor, 'string', redis.pcall('GET', cursor)), cursor)
local kept = expect_type(meta, 'hash', redis.pcall('HMGET', meta, 'last', 'era', 'r.' .. subscriber))
expect_type(live, 'zset', redis.pcall('ZCARD', live))
local at, turned = reckon(was, clock_of(kept[1], meta), clock_of(seen ~= '' and seen, 'seen'))
local srv_us, receipt = server_us(), clock_of(to, 'the receipt')
if not at then return { srv_us, 'channel-not-found' } end
if not own then return { srv_us, 'subscription-not-found' } end
local era = (clock_of(kept[2], meta) or 0) + (turned and 1 or 0)
-- A receipt without an era is compared with the server's own state: the caller's memory may be of a channel
-- that has ended.
local limit = given_era ~= '' and at or reckon(was, clock_of(kept[1], meta))
local beyond = not limit or clock_after(receipt, limit) or given_era ~= '' and tonumber(given_era) ~= era
local unproven = false
if proof_ms and not beyond and clock_after(receipt, own) then
  -- A message that was published after a restore has another expiry. If there is no message, the fetched one
  -- must have expired by now.
  local ends_ms = redis.call('PEXPIRETIME', proof)
  unproven = ends_ms ~= proof_ms and (ends_ms ~= -2 or proof_ms > math.floor(srv_us / 1000))
  beyond = unproven and ends_ms ~= -2
end
local last = string.format('%d', at)
if beyond or unproven or not clock_after(receipt, own) then -- anchor: cursors-only-go-forward
  return { srv_us, 'stale', last, string.format('%d', own), era, 0, beyond and 1 or 0 }
end
local ends_ms = math.floor(srv_us / 1000) + ttl_s * 1000
if turned then
  begin_anew(meta, last, era)
  redis.call('SET', clock, last)
elseif kept[1] ~= last then
  redis.call('HSET', meta, 'last', last)
end
if tonumber(kept[3] or 0) ~= era then
  redis.call('HSET', meta, 'r.' .. subscriber, string.format('%d', era))
end
redis.call('SET', cursor, string.format('%d', receipt), 'PXAT', lasting(ends_ms, cursor))
renew(lasting(ends_ms, clock, meta), clock, meta, live)
return { srv_us, 'OK', last, string.format('%d', receipt), era, turned and 1 or 0, 0 }
