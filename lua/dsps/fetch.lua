#!lua flags=allow-oom
-- The messages after a subscriber's cursor, in the order of the circle. Moves no cursor; renews the clock and this cursor.
--
-- Messages that have expired are skipped in bounded work: the index says which ones live. What it does not cover yet (foreign
-- publishers write no index) is looked at first, at most 1,000 keys in a call, and the next call goes on where this one stopped:
-- before `known` downwards, after `upto` upwards, and where that would be more clocks than there are keys, by a scan of the keys.
--
-- KEYS
--   clock   string  clock of the last message
--   cursor  string  r.<subscriber>, the last acknowledged clock
--   meta    hash    what these scripts know of the channel
--   live    zset    clocks of living messages, by themselves
-- ARGV
--   bodies      what the keys of bodies begin with; the clock follows
--   subscriber  name
--   most        number: most messages
--   ttl_s       number: life of what is renewed
--   seen        latest clock that the caller was told of, or ''
-- REPLY srv_us, ok, clock, cursor, era, turned, era_changed, upto, more, searching, proof_ms, for each message: clock, body
--    or srv_us, channel-not-found | subscription-not-found

local found = settled_clock(bodies, { clock, cursor })
local was, own = clock_of(found[1], clock), clock_of(found[2], cursor)
local fields = { 'last', 'era', 'upto', 'known', 'scan', 'r.' .. subscriber }
local kept = expect_type(meta, 'hash', redis.pcall('HMGET', meta, unpack(fields)))
expect_type(live, 'zset', redis.pcall('ZCARD', live))
local at, turned = reckon(was, clock_of(kept[1], meta), clock_of(seen ~= '' and seen, 'seen'))
local srv_us = server_us()
if not at then return { srv_us, 'channel-not-found' } end
if not own then return { srv_us, 'subscription-not-found' } end
if clock_after(own, at) then
  -- No cursor is ahead of its clock: this is a clock that went back.
  at, turned = own, true
end
local era = (clock_of(kept[2], meta) or 0) + (turned and 1 or 0)
local index = { upto = clock_of(kept[3], meta), known = kept[4] == 'all' and 'all' or clock_of(kept[4], meta), scan = kept[5] or nil }
if turned or not index.upto or not index.known then
  index = { upto = at, known = at }
  redis.call('HDEL', meta, 'ends')
end

local looks, blind = 1000, false
if own ~= at then looks, blind = index_more(meta, live, bodies, index, own, at) end
local items, upto = {}, own
-- A cursor may be past the index, where foreign clients published: what comes after it is not known of yet.
if not blind and not clock_after(own, index.upto) then
  items, upto = living(meta, live, bodies, own, index.upto, most, looks, math.floor(srv_us / 1000))
end

local era_changed, told = tonumber(kept[6] or 0) ~= era, kept[6] or nil
-- Where there is nothing to acknowledge, saying it once is all that can be done.
if era_changed and own == at then told = string.format('%d', era) end
local now = { last = string.format('%d', at), era = string.format('%d', era), upto = string.format('%d', index.upto) }
now.known, now.scan, now[fields[6]] = index.known == 'all' and 'all' or string.format('%d', index.known), index.scan, told
note_changes(meta, fields, kept, now)
local ends_ms = math.floor(srv_us / 1000) + ttl_s * 1000
if turned then redis.call('SET', clock, now.last) end
renew(lasting(ends_ms, clock, meta), clock, meta, live)
renew(lasting(ends_ms, cursor), cursor)
local more, searching = upto ~= at, #items == 0 and upto ~= at and most > 0 -- anchor: cursor-stays-at-a-fetch
local texts = { now.last, string.format('%d', own), string.format('%d', upto) }
local flags = { turned and 1 or 0, era_changed and 1 or 0, more and 1 or 0, searching and 1 or 0 }
-- For who acknowledges this: when what it ends with expires, -2 where nothing is (any more).
local proof_ms = redis.call('PEXPIRETIME', bodies .. (items[#items - 1] or texts[3]))
return { srv_us, 'ok', texts[1], texts[2], era, flags[1], flags[2], texts[3], flags[3], flags[4], proof_ms, items }
