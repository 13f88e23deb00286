#!lua flags=no-writes
-- One page of the schedules by next tick, those that do not tick last; or the schedule with this name. A next
-- tick that a foreign client has moved is the one on the wire, and a schedule that it has removed is left
-- out. One that only foreign clients know yet is listed with version 0: the first call that changes it makes
-- it one of the engine's.
--
-- HEAD foreign/format
-- KEYS
--   cron      zset    schedules by next tick (ms), +inf for one that does not tick
--   schedule  hash    cron:<schedule>, its definition and its state
-- ARGV
--   name      name of the schedule, '' = a page of all
--   offset    number: first rank
--   limit     number: most schedules of the page
-- REPLY srv_us, 1 where more follow, then for each as in the script of Lanes
-- USES <format>: wire_add_entry, wire_next_tick_ms, wire_schedule_names
--      foreign/format: unchecked_now
--      schedules/schedule: add_schedule

local srv_us, format = unchecked_now(now_ms, sweep, root, prefix, queue, layout, settings)
local page = {}
local function add(known, key)
  local next_ms, before = wire_next_tick_ms(format, known), #page
  if next_ms ~= false then add_schedule(page, known, key, next_ms) end
  if next_ms ~= false and #page == before then wire_add_entry(format, page, known) end
end
if name ~= '' then
  add(name, schedule)
  return { srv_us, 0, page }
end
local names, total = wire_schedule_names(format, offset, limit)
if not names then
  names, total = redis.call('ZRANGE', cron, offset, offset + limit - 1), redis.call('ZCARD', cron)
end
for _, member in ipairs(names) do add(member, prefix .. 'cron:' .. member) end
return { srv_us, total > offset + limit and 1 or 0, page }
