#!lua flags=allow-oom
-- Finish jobs in hand. Each lease ends once: a repeat returns what the first one returned, another token is stale (rule 5).
--
-- KEYS
--   sweep    hash    state of the sweeps
--   active   zset    id by lease deadline (ms)
--   done     zset    id by time
--   stats    hash    counters
--   items    2 for each item: job:<id> and run:<id>
--   results  1 for each result: result:<id>
-- ARGV
--   now_ms   '' or the time of a test
--   prefix   prefix of the queue's keys
--   items    2 for each item: fence, nonce
--   results  3 for each result: number of its item, ttl_ms, its record from took_ms on
-- REPLY srv_us, for each item: ok | repeated | stale, outcome; only their number where all are ok
-- @include server_us
-- @include settled
-- @include check_types
-- @include envelope_open
-- @include token_state
-- @include ready_lane
-- @include free_slots
-- @include free_unique
-- @include drop_run
-- @include due_member
-- @include to_lane
-- @include lane_score
-- @include bury_job
-- @include parent_fate
-- @include unblock_job
-- @include hand_over
-- @include error_ttl
-- @include tell_ended
-- @include finish_jobs
-- @include wake_push
-- @include tell_events

settled(prefix)
check_types({ active, done }, { sweep, stats }, {})
local srv_us = server_us(now_ms, sweep)
local wakes, noted = {}, redis.call('HMGET', stats, 'turn', 'waits_ms', 'events')
local events = noted[3] and { keep = noted[3] }
local finished = finish_jobs(prefix, 5, 3, math.floor(srv_us / 1000), tonumber(noted[1] or 0), wakes,
  { envelope_open = envelope_open, token_state = token_state, free_slots = free_slots, ready_lane = ready_lane, free_unique = free_unique,
    due_member = due_member, to_lane = to_lane, lane_score = lane_score, bury_job = bury_job, parent_fate = parent_fate, unblock_job = unblock_job,
    hand_over = hand_over, error_ttl = error_ttl, tell_ended = tell_ended, check_types = check_types,
    drop_run = drop_run, events = events }, noted[2])
for list in pairs(wakes) do wake_push(list) end
if events then tell_events(prefix .. 'events', events) end
return { srv_us, finished }
