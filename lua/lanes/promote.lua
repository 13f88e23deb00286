#!lua flags=allow-oom
-- Move due jobs into their lanes, bring back lanes whose rest is over, handle children of ended parents (rule 25), push the
-- missing wake markers (rule 22), release results that no child needs any more, and return the schedules that are due: only the
-- caller can compute their next ticks (rule 24).
--
-- KEYS
--   sweep    hash    state of the sweeps
--   due      zset    sequence and id by due_ms
--   rest     zset    lanes and classes by the time (ms) at which their rate window or pause ends
--   cron     zset    schedules by next tick (ms), +inf for one that does not tick
--   parked   hash    lane -> the limit that it waits for
--   paused   hash    pauses
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   stats    hash    counters
--   settings hash    settings of workers, and the version of settings and targets
--   swept    string  swept:<incarnation>, counter and reply of its last sweep
--   keeping  zset    jobs whose results are kept for others, by the time (ms) of their last check
-- ARGV
--   now_ms   '' or the time of a test
--   prefix   prefix of the queue's keys
--   counter  counter of the incarnation's sweeps
--   limit    number: most jobs to move
--   most_ms  number: upper bound of the sleep that the reply allows
-- REPLY srv_us, sleep_ms, promoted, then the ids of jobs with a corrupt envelope, which it buried; for each due schedule: name,
--       version, next tick, anchor_ms, timing, policy; version of the news (read_worker_updates.lua)

settled(prefix)
check_types({ due, rest, cron, active, dead, keeping }, { sweep, stats, parked, paused, settings }, {}, { swept })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local version = tonumber(redis.call('HGET', settings, 'version') or 0)
local repeated = swept_before(swept, counter)
if repeated then return { srv_us, next_sweep_ms(prefix, now_ms, most_ms, {}, 'cron'), repeated, due_schedules(prefix, now_ms, 16), version } end

local noted = redis.call('HMGET', stats, 'turn', 'events')
local turn, events = tonumber(noted[1] or 0), noted[2] and { keep = noted[2] }
local promoted, wakes, corrupt = promote_due(prefix, turn, now_ms, limit, events)
mend_feeding(prefix, now_ms) -- anchor: sweep-tells-forgotten-children
local more = hand_over(prefix, now_ms, turn, limit, wakes, events)
more = release_results(prefix, now_ms, 100) or more
for list in pairs(wakes) do wake_push(list) end
wake_classes(prefix, now_ms)
table.insert(corrupt, 1, promoted)
if promoted > 0 or #corrupt > 1 then redis.call('SET', swept, counter .. ' ' .. table.concat(corrupt, ' '), 'PXAT', now_ms + 20000) end
local sleep_ms = more and 0 or next_sweep_ms(prefix, now_ms, most_ms, {}, 'cron')
if events then tell_events(prefix .. 'events', events) end
return { srv_us, sleep_ms, corrupt, due_schedules(prefix, now_ms, 16), version }
