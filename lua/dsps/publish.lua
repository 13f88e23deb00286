#!lua
-- Publish messages in their order, each under the next clock, unless its id is known: then it keeps its clock
-- and its expiry. A copy of the call that comes after `not_after_ms` publishes nothing (rule 3). Bodies are
-- written first, then ids, then the clock. After a call that was cut off, its next copy finds the messages by
-- their ids and goes on behind them. The call of another publisher finds them by the bodies after the clock.
--
-- KEYS
--   clock  string  clock of the last message
--   meta   hash    state that these scripts keep of the channel
--   live   zset    clocks of living messages, each with itself as score
--   items  1 for each item: mid.<id>, its clock
-- ARGV
--   bodies        prefix of the keys of bodies; the clock follows
--   mids          prefix of the keys of clocks by ids; the id follows
--   wake_topic    pub/sub channel that wakes waiting subscribers
--   ttl_s         number: life of what is written
--   not_after_ms  number: server time after which this call is void
--   seen          latest clock that the caller has received, or ''
--   items         1 for each item: body
-- REPLY srv_us, clock, era, turned, for each item: c (created) or d (duplicate) and its clock, or r (refused)
-- USES dsps/clock: begin_anew, behind_unfinished, clock_after, clock_ahead, clock_of, clock_steps,
--        expect_type, id_under, lasting, note_ends, note_longest, reckon, renew, server_us, settled_clock
--      dsps/index: drop_dead, index_all, look_around, oldest

local count, read = #KEYS - 3, { clock, unpack(KEYS, 4) }
local found = settled_clock(bodies, read)
local raw, clocks = found[1], {}
local known = expect_type(meta, 'hash', redis.pcall('HMGET', meta, 'last', 'era', 'upto', 'longest_ms'))
local start, turned = reckon(clock_of(raw, clock), clock_of(known[1], meta),
  clock_of(seen ~= '' and seen, 'seen'))
local upto, era = clock_of(known[3], meta), clock_of(known[2], meta) or 0
local old = oldest(live, start or 0, 3)
for item = 2, count + 1 do
  local mid, at = read[item], clock_of(found[item], read[item])
  local stored = at and id_under(bodies, found[item])
  -- A client of the original that publishes after a call that was cut off overwrites the bodies of that call:
  -- they are published anew.
  if at and (not stored or mids .. stored == mid) then
    clocks[mid] = found[item]
    -- An earlier copy was cut off before it wrote the clock.
    if not start or clock_after(at, start) then start = at end
  end
end
-- Without `upto` these scripts have published nothing in this channel.
if start and upto then start = behind_unfinished(bodies, mids, start) end -- anchor: unfinished-publishes-stay
local srv_us = server_us()
local now_ms = math.floor(srv_us / 1000)
local words, refused, late = {}, 0, now_ms > not_after_ms -- anchor: late-publish-is-void
for item = 1, count do
  local at = clocks[KEYS[3 + item]]
  words[item] = at and 'd' .. at or 'r'
  if not at then refused = refused + 1 end
end
if late and refused == count then return { srv_us, raw, era, 0, words } end

local ends_ms = string.format('%d', now_ms + ttl_s * 1000)
local channel_ends_ms = lasting(now_ms + ttl_s * 1000, clock, meta)
if turned then era = era + 1 end
-- The clock first: a call that is cut off must not look like a channel whose clock was lost.
if not start then redis.call('SET', clock, '0', 'PXAT', channel_ends_ms) end
local position, made, longest_ms = start or 0, {}, math.max(tonumber(known[4] or 0), ttl_s * 1000)
if turned or not upto then
  upto = position
  begin_anew(meta, string.format('%d', position), era)
elseif upto ~= start and clock_steps(upto, start) <= 100 then
  -- Messages that foreign clients published.
  local foreign, foreign_ms = look_around(bodies, clock_ahead(upto, 1), 1, clock_steps(upto, start))
  note_longest(meta, foreign_ms, true)
  index_all(live, foreign)
  upto, longest_ms = start, math.max(longest_ms, foreign_ms)
end
local whole = upto == position
if longest_ms ~= tonumber(known[4] or 0) then note_longest(meta, longest_ms, false) end
for item = 1, late and 0 or count do
  local mid = KEYS[3 + item]
  if not clocks[mid] then -- anchor: known-ids-are-not-published-again
    position = clock_ahead(position, 1)
    local text = string.format('%d', position) -- anchor: clocks-keep-every-digit
    redis.call('SET', bodies .. text, ARGV[6 + item], 'PXAT', ends_ms)
    redis.call('SET', mid, text, 'PXAT', ends_ms)
    clocks[mid], words[item], made[#made + 1] = text, 'c' .. text, text
  elseif words[item] == 'r' then
    -- The same id twice in one call.
    words[item] = 'd' .. clocks[mid]
  end
end
index_all(live, made)
local last = string.format('%d', position)
redis.call('SET', clock, last, 'PXAT', channel_ends_ms)
redis.call('HSET', meta, 'last', last, 'upto', whole and last or string.format('%d', upto))
if math.floor(position / 256) ~= math.floor((start or 0) / 256) then
  note_ends(meta, position, now_ms + longest_ms)
end
renew(channel_ends_ms, meta, live)
drop_dead(live, bodies, old, position, count + 2)
redis.call('PUBLISH', wake_topic, 'new message')
return { srv_us, last, era, turned and 1 or 0, words }
