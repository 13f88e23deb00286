#!lua flags=allow-oom
-- Remove a schedule. The jobs that it has made stay.
--
-- HEAD core/call
-- KEYS
--   cron     zset    schedules by next tick (ms), +inf for one that does not tick
--   schedule hash    cron:<schedule>, its definition and its state
--   op       string  op:<op id>, record of this call: its result
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   name          name of the schedule
-- REPLY srv_us, done | repeated | refused, changed | gone
-- USES schedules/schedule: schedule_call, schedule_remove

local srv_us, known = schedule_call({ sweep = sweep, cron = cron, schedule = schedule, op = op }, now_ms,
  not_after_ms)
if known then return known end
return schedule_remove({ cron = cron, schedule = schedule, op = op }, name, srv_us, not_after_ms)
