#!lua flags=allow-oom
-- End leases for good without a finish: jobs that their handler discards, that an error rule skips, or that
-- are rerouted. What stays is a tombstone with the outcome, and of a skipped job its error as its result, and
-- its entry among the finished ones. For jobs that wait for it, it is lost (rule 25).
--
-- HEAD core/call
-- KEYS
--   active   zset    id by lease deadline (ms)
--   done     zset    id by time
--   dead     zset    id by time
--   due      zset    sequence and id by due_ms
--   stats    hash    counters
--   blocked  zset    jobs that wait for parents, by the time (ms) of their enqueue
--   feeding  set     jobs that others wait for
--   handing  zset    those of them that have ended, by time, until all of their children are handled
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   items    5 for each item: id, fence, nonce, discarded | skipped | rerouted, error text
-- REPLY srv_us, for each item: ok | repeated | stale, outcome
-- USES children/children: hand_over
--      core/call: check_types, server_us
--      core/envelope: job_head, pack_token, tombstone_of
--      core/history: note_end, notes_kept
--      core/job: free_unique
--      core/lease: drop_run, keep_error, token_state
--      core/limit: free_slots
--      core/run: run_look
--      core/wake: append_events, notify_waiters, wake_push

local jobs, runs = {}, {}
for at = 10, #KEYS, 2 do jobs[#jobs + 1], runs[#runs + 1] = KEYS[at], KEYS[at + 1] end
check_types({ active, done, dead, due, blocked, handing }, { sweep, stats }, {})
local fed = redis.call('SCARD', feeding) > 0
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local numbers, reply, held, wakes = { discarded = 2, skipped = 5, rerouted = 6 }, {}, {}, {}
for at = 1, #jobs do
  local id, fence, nonce, outcome = ARGV[5 * at - 2], ARGV[5 * at - 1], ARGV[5 * at], ARGV[5 * at + 1]
  local job = job_head(jobs[at])
  local state, ended, limits = token_state(runs[at], job, fence, nonce)
  local leaves = state == 'held' and job.kind == 'J'
  -- A call that was cut off after writing the tombstone has left the lease behind.
  local cut = state == 'repeated' and job and job.kind == 'T' and redis.call('ZSCORE', active, id)
  if leaves or cut then
    held[#held + 1] = { id = id, job = job, key = jobs[at], run = runs[at], outcome = outcome, fresh = leaves,
      error = ARGV[5 * at + 2], limits = limits or run_look(runs[at], 'limits')[1],
      tombstone = tombstone_of(numbers[outcome], job.enqueue_nonce, tonumber(fence), pack_token(nonce)) }
  end
  if leaves then state, ended = 'ok', outcome elseif state == 'held' then state = 'stale' end
  reply[2 * at - 1], reply[2 * at] = state, ended
end
local noted = redis.call('HMGET', stats, 'turn', 'events', 'history')
local virtual_time, events = tonumber(noted[1] or 0), notes_kept(noted[2], noted[3])
for _, lease in ipairs(held) do
  local waited_for = fed and redis.call('SISMEMBER', feeding, lease.id) == 1
  if lease.fresh then
    note_end(prefix, events, lease.id, lease.outcome, now_ms, lease.error)
    if lease.outcome == 'skipped' then
      keep_error(prefix, lease.id, lease.job, now_ms, lease.error, waited_for, '"skipped":true,')
    end
    redis.call('SET', lease.key, lease.tombstone, 'PXAT',
      math.max(lease.job.not_after_ms, now_ms) + LATE_COPY_MS)
    redis.call('HINCRBY', stats, lease.outcome, 1)
    free_unique(prefix, lease.job, lease.id) -- anchor: skipped-job-frees-its-unique-key
    if events then events[#events + 1] = { lease.outcome, lease.id, lease.job.name, lease.error } end
  end
  free_slots(prefix, lease.limits, lease.id, virtual_time, wakes)
  -- Half a millisecond tells it from a finished job when its tombstone has expired (done_as).
  if lease.outcome == 'skipped' then redis.call('ZADD', done, now_ms + 0.5, lease.id) end
  if waited_for then redis.call('ZADD', handing, now_ms, '-' .. lease.id) end
  if lease.fresh then redis.call('DEL', lease.run) else drop_run(prefix, lease.id) end
  redis.call('ZREM', active, lease.id)
  notify_waiters(prefix, lease.id)
end
if fed then hand_over(prefix, now_ms, virtual_time, 100, wakes, events) end
for list in pairs(wakes) do wake_push(list) end
if events then append_events(prefix .. 'events', events) end
return { srv_us, reply }
