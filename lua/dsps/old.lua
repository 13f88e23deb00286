#!lua flags=no-writes
-- Which messages are at or before a subscriber's cursor, so that it will not receive them any more. An
-- unknown message is not old.
--
-- KEYS
--   clock   string  clock of the last message
--   cursor  string  r.<subscriber>, the last acknowledged clock
--   meta    hash    state that these scripts keep of the channel
--   items   1 for each item: mid.<id>, its clock
-- ARGV
-- REPLY srv_us, ok, clock, cursor, for each item: 1 (old) or 0
--    or srv_us, channel-not-found | subscription-not-found
-- USES dsps/clock: clock_after, clock_of, expect_type, reckon, server_us

local was = clock_of(expect_type(clock, 'string', redis.pcall('GET', clock)), clock)
local own = clock_of(expect_type(cursor, 'string', redis.pcall('GET', cursor)), cursor)
local at = reckon(was, clock_of(expect_type(meta, 'hash', redis.pcall('HGET', meta, 'last')), meta))
local srv_us = server_us()
if not at then return { srv_us, 'channel-not-found' } end
if not own then return { srv_us, 'subscription-not-found' } end
local old = {}
for item = 1, #KEYS - 3 do
  local mid = KEYS[3 + item]
  local found = clock_of(expect_type(mid, 'string', redis.pcall('GET', mid)), mid)
  old[item] = found and not clock_after(found, own) and 1 or 0
end
return { srv_us, 'ok', string.format('%d', at), string.format('%d', own), old }
