#!lua flags=no-writes
-- Why jobs of a queue do not run: its pauses, its limits with some of their holders, and the lanes, each with
-- its reason and its waiting time. Lanes come in pages of some 100. The first page has up to 200 pauses and
-- 200 limits, first the limits for which lanes wait.
--
-- HEAD core/call
-- KEYS
--   paused   hash    pauses
--   limits   hash    definitions of limits
--   blocking zset    limits with parked lanes by the time (ms) of their last check
--   parked   hash    lane -> the limit that it waits for
--   rest     zset    lanes and classes by the time (ms) at which their rate window or pause ends
-- ARGV
--   cursor   '' = begin; else where the call before has ended
-- REPLY srv_us, pauses: name, until_ms (0 = until it is resumed), ...; for each limit: see limit_use; for
--       each lane: lane, waiting jobs, since when the oldest one waits (ms), the limit that it waits for (''
--       = none) or `rest`, the end of its rest (ms); cursor of the next call ('' = no more lanes)
-- USES core/call: check_types, server_us
--      core/lane: some_lanes
--      looks/looks: lane_since, limit_use, pauses_on

check_types({ blocking, rest }, { sweep, paused, limits, parked }, {})
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local pauses, used, found = {}, {}, {}
if cursor == '' then
  pauses = pauses_on(redis.call('HSCAN', paused, '0', 'COUNT', 200)[2], now_ms)
  for at = #pauses, 401, -1 do pauses[at] = nil end
  -- First those that lanes wait for, of which keys without a limit of their own have that of k:*, then
  -- others.
  local seen, each = {}, redis.call('HGET', limits, 'k:*')
  for _, limit in ipairs(redis.call('ZRANGE', blocking, 0, 99)) do
    local own = redis.call('HGET', limits, limit)
    seen[limit] = true
    if own or each then used[#used + 1] = limit_use(prefix, limit, own or each, now_ms, 1, 5, not own) end
  end
  local defined = redis.call('HSCAN', limits, '0', 'COUNT', 200)[2]
  for at = 1, #defined, 2 do
    if not seen[defined[at]] and #used < 200 then
      used[#used + 1] = limit_use(prefix, defined[at], defined[at + 1], now_ms, 1, #used < 100 and 5 or 0)
    end
  end
end
local lanes, more = some_lanes(prefix, cursor, 100)
local most = math.max(1, math.floor(250 / math.max(25, #lanes)))
for _, lane in ipairs(lanes) do
  local size = redis.call('ZCARD', prefix .. 'lane:' .. lane)
  if size > 0 then
    local waits = redis.call('HGET', parked, lane) or ''
    local until_ms = waits == 'rest' and tonumber(redis.call('ZSCORE', rest, 'l:' .. lane) or 0) or 0
    found[#found + 1] = { lane, size, lane_since(prefix, lane, size, most), waits, until_ms }
  end
end
return { srv_us, pauses, used, found, more }
