#!lua flags=allow-oom
-- Move due jobs into their lanes, bring back lanes that rested, tell children that their parents have ended (rule 25), re-arm the wake
-- markers while work is claimable (rule 22), let go of results that no child needs any more, and say which schedules are due: what
-- their next ticks are only the caller can tell (rule 24).
--
-- KEYS
--   sweep    hash    state of the sweeps
--   due      zset    sequence and id by due_ms
--   rest     zset    lanes and classes that rest until a time (ms)
--   cron     zset    schedules by next tick (ms), +inf for one that does not tick
--   parked   hash    lane -> the limit that it waits for
--   paused   hash    pauses
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   stats    hash    counters
--   settings hash    version of what workers learn once, and the settings among it
--   swept    string  swept:<incarnation>, what its last sweep moved
--   keeping  zset    jobs whose results are kept for others, by the time of the last look (ms)
-- ARGV
--   now_ms   '' or the time of a test
--   prefix   prefix of the queue's keys
--   counter  counter of the incarnation's sweeps
--   limit    number: most jobs to move
--   most_ms  number: upper bound of the sleep that the reply allows
-- REPLY srv_us, sleep_ms, promoted, then the ids that it could not read and buried; for each due schedule: name, version, next tick, anchor_ms,
--       timing, policy; version of what workers learn once (news.lua)
-- @include server_us
-- @include settled
-- @include check_types
-- @include envelope_open
-- @include lane_score
-- @include to_lane
-- @include free_unique
-- @include drop_run
-- @include error_ttl
-- @include tell_ended
-- @include bury_job
-- @include ready_lane
-- @include promote_due
-- @include is_paused
-- @include wake_push
-- @include wake_classes
-- @include due_schedules
-- @include next_ms
-- @include due_member
-- @include parent_fate
-- @include unblock_job
-- @include hand_over
-- @include mend_feeding
-- @include let_go
-- @include swept_before
-- @include tell_events

settled(prefix)
check_types({ due, rest, cron, active, dead, keeping }, { sweep, stats, parked, paused, settings }, {}, { swept })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local version = tonumber(redis.call('HGET', settings, 'version') or 0)
local told = swept_before(swept, counter)
if told then return { srv_us, next_ms(prefix, now_ms, most_ms, 'cron'), told, due_schedules(prefix, now_ms, 16), version } end

local noted = redis.call('HMGET', stats, 'turn', 'events')
local turn, events = tonumber(noted[1] or 0), noted[2] and { keep = noted[2] }
local helpers = { envelope_open = envelope_open, to_lane = to_lane, lane_score = lane_score, bury_job = bury_job, free_unique = free_unique,
  ready_lane = ready_lane, due_member = due_member, parent_fate = parent_fate, unblock_job = unblock_job, error_ttl = error_ttl,
  tell_ended = tell_ended, drop_run = drop_run, events = events }
local promoted, wakes, corrupt = promote_due(prefix, turn, now_ms, limit, helpers)
mend_feeding(prefix, now_ms, helpers) -- anchor: sweep-tells-forgotten-children
local more = hand_over(prefix, now_ms, turn, limit, wakes, helpers)
more = let_go(prefix, now_ms, 100, helpers) or more
for list in pairs(wakes) do wake_push(list) end
wake_classes(prefix, now_ms, { is_paused = is_paused, wake_push = wake_push })
table.insert(corrupt, 1, promoted)
if promoted > 0 or #corrupt > 1 then redis.call('SET', swept, counter .. ' ' .. table.concat(corrupt, ' '), 'PXAT', now_ms + 20000) end
local sleep_ms = more and 0 or next_ms(prefix, now_ms, most_ms, 'cron')
if events then tell_events(prefix .. 'events', events) end
return { srv_us, sleep_ms, corrupt, due_schedules(prefix, now_ms, 16), version }
