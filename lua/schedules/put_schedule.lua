#!lua
-- Define a schedule, or change it (rule 24). If its timing stays the same, its next tick and its anchor stay;
-- if nothing changes, nothing is written to it.
--
-- HEAD core/call
-- KEYS
--   cron     zset    schedules by next tick (ms), +inf for one that does not tick
--   schedule hash    cron:<schedule>, its definition and its state
--   stats    hash    counters
--   op       string  op:<op id>, record of this call: its result
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   name          name of the schedule
--   timing        times of its ticks, as JSON
--   policy        policy for missed ticks and overlapping jobs, as JSON
--   job           envelope of its jobs: sequence and time are zero
--   next_ms       the next tick, for one that is new, has another timing, or did not tick until now
--   anchor_ms     where its intervals count from, for one that is new or has another timing
--   enabled       1, 0, or '' = unchanged, for a new one 1
--   most          number: most schedules of the queue
-- REPLY srv_us, done | repeated | refused, new | changed | same | full
-- USES core/call: check_types
--      schedules/schedule: schedule_call, schedule_put

local srv_us, known = schedule_call({ sweep = sweep, cron = cron, schedule = schedule, op = op }, now_ms,
  not_after_ms)
if known then return known end
check_types({}, { stats }, {})
return schedule_put({ cron = cron, schedule = schedule, stats = stats, op = op },
  { name = name, timing = timing, policy = policy, job = job, next_ms = next_ms, anchor_ms = anchor_ms,
  enabled = enabled, most = most }, srv_us, not_after_ms)
