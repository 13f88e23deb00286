#!lua flags=allow-oom
-- Let a schedule tick, or stop it. A schedule that ticks already keeps its next tick.
--
-- HEAD core/call
-- KEYS
--   cron     zset    schedules by next tick (ms), +inf for one that does not tick
--   schedule hash    cron:<schedule>, its definition and its state
--   op       string  op:<op id>, record of this call: its result
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   name          name of the schedule
--   version       the version that the next tick was computed for
--   next_ms       the next tick, 0 = stop the schedule
-- REPLY srv_us, done | repeated | refused, changed | same | other | gone
-- USES schedules/schedule: schedule_call, schedule_enable

local srv_us, known = schedule_call({ sweep = sweep, cron = cron, schedule = schedule, op = op }, now_ms,
  not_after_ms)
if known then return known end
return schedule_enable({ cron = cron, schedule = schedule, op = op }, name, version, next_ms, srv_us,
  not_after_ms)
