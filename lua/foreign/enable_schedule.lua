#!lua flags=allow-oom
-- Let a schedule tick, or do not let it any more. One that ticks already keeps its next tick.
-- Where the format has schedules, that is written there too.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   cron     zset    schedules by next tick (ms), +inf for one that does not tick
--   schedule hash    cron:<schedule>, its definition and its state
--   op       string  op:<op id>, what this call met
-- ARGV
--   now_ms        '' or the time of a test
--   prefix        prefix of our own keys
--   root          what the foreign keys begin with
--   queue         name of the queue
--   layout        layout of the format, '' = its only one
--   settings      what else the format wants to know
--   not_after_ms  number: server time after which this call is void
--   name          name of the schedule
--   version       the version that the next tick was reckoned for
--   next_ms       the next tick, 0 = it does not tick any more
-- REPLY srv_us, done | repeated | refused, changed | same | other | gone

local srv_us, known = schedule_call({ sweep = sweep, cron = cron, schedule = schedule, op = op }, now_ms, not_after_ms)
if known then return known end
local model = wire(root, prefix, queue, layout, settings, math.floor(srv_us / 1000))
model.check()
return schedule_enable({ cron = cron, schedule = schedule, op = op }, name, version, next_ms, srv_us, not_after_ms, model.scheduled)
