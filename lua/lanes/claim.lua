#!lua flags=allow-oom
-- Finish jobs in hand, if any, then promote what is due and lease up to `limit` jobs of a class to one worker incarnation
-- (rules 4, 6 and 13). A claim that is void or stale leases nothing; the finish half is answered all the same.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   ready    zset    ready lanes of the class
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   stats    hash    counters
--   wake     list    at most one marker
--   record   string  claim:<incarnation>, the last claim and what it leased
--   done     zset    id by time
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   now_ms        '' or the time of a test
--   prefix        prefix of the queue's keys
--   incarnation   16 hex digits
--   counter       claim counter of the incarnation
--   limit         most jobs to lease
--   lease_ms      length of the lease
--   not_after_ms  server time after which the claim is void
--   owner         name of the worker, for people
--   most_ms       upper bound of the sleep that the reply allows
--   crashed_max   most jobs with a crash behind them to lease
--   items         3 for each item: id, fence, nonce
-- REPLY srv_us, finish reply, kind, sleep_ms, corrupt ids, jobs: id fence deadline_ms claims failures crashes envelope
-- @include server_us
-- @include check_types
-- @include envelope_open
-- @include token_state
-- @include finish_jobs
-- @include is_leased
-- @include lane_score
-- @include to_lane
-- @include wake_push
-- @include bury_job
-- @include promote_due
-- @include note_lease
-- @include claim_jobs
-- @include next_ms
local sweep = KEYS[1]
local ready = KEYS[2]
local due = KEYS[3]
local active = KEYS[4]
local dead = KEYS[5]
local stats = KEYS[6]
local wake = KEYS[7]
local record = KEYS[8]
local done = KEYS[9]
local now_ms = ARGV[1]
local prefix = ARGV[2]
local incarnation = ARGV[3]
local counter = ARGV[4]
local limit = tonumber(ARGV[5])
local lease_ms = tonumber(ARGV[6])
local not_after_ms = tonumber(ARGV[7])
local owner = ARGV[8]
local most_ms = tonumber(ARGV[9])
local crashed_max = tonumber(ARGV[10])

check_types({ ready, due, active, dead, done }, { sweep, stats }, { wake })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local items = {}
for at = 1, (#KEYS - 9) / 2 do
  local job_key, run_key, id, fence, nonce = KEYS[8 + 2 * at], KEYS[9 + 2 * at], unpack(ARGV, 8 + 3 * at, 10 + 3 * at)
  items[at] = { job_key = job_key, run_key = run_key, id = id, fence = fence, nonce = nonce }
end
local helpers = { envelope_open = envelope_open, is_leased = is_leased, to_lane = to_lane, lane_score = lane_score,
  bury_job = bury_job, token_state = token_state, note_lease = note_lease }
local finished = finish_jobs(active, done, stats, items, now_ms, helpers)
local _, wakes, unread = promote_due(prefix, due, dead, stats, now_ms, 100, helpers)
local kind, jobs, corrupt, passed = claim_jobs(
  { sweep = sweep, active = active, ready = ready, dead = dead, stats = stats, record = record },
  { prefix = prefix, incarnation = incarnation, counter = counter, limit = limit, lease_ms = lease_ms,
    not_after_ms = not_after_ms, owner = owner, crashed_max = crashed_max, corrupt = unread }, now_ms, helpers)
-- No marker for what this worker had to pass by: it would only come back to it. The next sweep makes one for the others.
if redis.call('ZCARD', ready) == 0 then wakes[wake] = nil elseif #jobs > 0 or not passed then wakes[wake] = true end
for list in pairs(wakes) do wake_push(list) end
return { srv_us, finished, kind, next_ms(sweep, active, due, now_ms, most_ms), corrupt, jobs }
