#!lua flags=allow-oom
-- The messages after a subscriber's cursor, in the order of the circle of clocks. Moves no cursor; renews the
-- clock and this cursor.
--
-- Expired messages are skipped with bounded work: an index holds the living ones. Foreign publishers write no
-- index. So clocks that it does not cover yet are read first, at most 1,000 keys per call. The next call
-- goes on where this one stopped. Clocks before `known` are read downwards, those after `upto` upwards. If
-- that would be more clocks than there are keys, the keys are scanned instead.
--
-- KEYS
--   clock   string  clock of the last message
--   cursor  string  r.<subscriber>, the last acknowledged clock
--   meta    hash    state that these scripts keep of the channel
--   live    zset    clocks of living messages, each with itself as score
-- ARGV
--   bodies      prefix of the keys of bodies; the clock follows
--   subscriber  name
--   most        number: most messages
--   ttl_s       number: life of what is renewed
--   seen        latest clock that the caller has received, or ''
-- REPLY srv_us, ok, clock, cursor, era, turned, era_changed, upto, more, searching, proof_ms, for each
--       message: clock, body, and early_ms where it is not 0 or srv_us, channel-not-found |
--       subscription-not-found
-- USES dsps/clock: clock_after, clock_of, expect_type, lasting, note_changes, reckon, renew, server_us,
--        settled_clock
--      dsps/index: index_more, living

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
  -- A cursor cannot be ahead of its clock, so the clock went back.
  at, turned = own, true
end
local era = (clock_of(kept[2], meta) or 0) + (turned and 1 or 0)
local index = { upto = clock_of(kept[3], meta), known = kept[4] == 'all' and 'all' or clock_of(kept[4], meta),
  scan = kept[5] or nil }
-- An index that is more than half of the circle behind would count as ahead of the clock, and no search could
-- bring it nearer.
local behind = not index.upto or not index.known or clock_after(index.upto, at)
  or (index.known ~= 'all' and clock_after(index.known, at))
if turned or behind then
  index = { upto = at, known = at }
  redis.call('HDEL', meta, 'ends')
end

local reads, blind = 1000, false
if own ~= at then reads, blind = index_more(meta, live, bodies, index, own, at) end
local items, upto = {}, own
-- The cursor may be past the index where foreign clients published: the messages after it are not known yet.
if not blind and not clock_after(own, index.upto) then
  items, upto = living(meta, live, bodies, own, index.upto, most, reads, math.floor(srv_us / 1000))
end

local era_changed, known_era = tonumber(kept[6] or 0) ~= era, kept[6] or nil
-- If there is nothing to acknowledge, the change of era is reported only once.
if era_changed and own == at then known_era = string.format('%d', era) end
local now = { last = string.format('%d', at), era = string.format('%d', era),
  upto = string.format('%d', index.upto) }
now.known, now.scan, now[fields[6]] = index.known == 'all' and 'all' or string.format('%d', index.known),
  index.scan, known_era
note_changes(meta, fields, kept, now)
local ends_ms = math.floor(srv_us / 1000) + ttl_s * 1000
-- These scripts let the clock and their own state of it end together: an earlier clock is one that another
-- service has shortened.
local clock_ends_ms, own_ends_ms = redis.call('PEXPIRETIME', clock), redis.call('PEXPIRETIME', meta)
local early_ms = clock_ends_ms > 0 and math.max(0, own_ends_ms - clock_ends_ms) or 0
if turned then redis.call('SET', clock, now.last) end
renew(string.format('%d', math.max(ends_ms, clock_ends_ms, own_ends_ms)), clock, meta, live)
renew(lasting(ends_ms, cursor), cursor)
local more, searching = upto ~= at, #items == 0 and upto ~= at and most > 0 -- anchor: cursor-stays-at-a-fetch
local texts = { now.last, string.format('%d', own), string.format('%d', upto) }
local flags = { turned and 1 or 0, era_changed and 1 or 0, more and 1 or 0, searching and 1 or 0 }
-- For the acknowledgement: when the last message of this reply expires, -2 where there is none (any more).
local proof_ms = redis.call('PEXPIRETIME', bodies .. (items[#items - 1] or texts[3]))
local reply = { srv_us, 'ok', texts[1], texts[2], era, flags[1], flags[2], texts[3], flags[3], flags[4],
  proof_ms, items }
if early_ms > 0 then reply[#reply + 1] = early_ms end
return reply
