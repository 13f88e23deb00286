#!lua flags=no-writes
-- One page of the schedules by next tick, those that do not tick last; or the schedule with this name.
--
-- HEAD core/call
-- KEYS
--   cron     zset    schedules by next tick (ms), +inf for one that does not tick
--   schedule hash    cron:<schedule>, its definition and its state
-- ARGV
--   name     name of the schedule, '' = a page of all
--   offset   number: first rank
--   limit    number: most schedules of the page
-- REPLY srv_us, 1 where more follow, then for each: name, version, timing, policy, job, enabled, anchor_ms,
--       next_ms, last_ms, last_job, count, missed, skipped, error
-- USES core/call: server_us
--      schedules/schedule: add_schedule

local page = {}
local srv_us = server_us(now_ms, sweep)
if name ~= '' then
  add_schedule(page, name, schedule)
  return { srv_us, 0, page }
end
for _, member in ipairs(redis.call('ZRANGE', cron, offset, offset + limit - 1)) do
  add_schedule(page, member, prefix .. 'cron:' .. member)
end
return { srv_us, redis.call('ZCARD', cron) > offset + limit and 1 or 0, page }
