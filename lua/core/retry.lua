#!lua flags=allow-oom
-- End leases of jobs that failed: each waits for its back-off in `due`, or is buried when its attempts are
-- used up. This call makes the callback of a buried job. The next sweep handles the jobs that need it
-- (rule 25).
--
-- HEAD core/call
-- KEYS
--   active   zset    id by lease deadline (ms)
--   due      zset    sequence and id by due_ms
--   dead     zset    id by time
--   stats    hash    counters
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   items    7 for each item: id, fence, nonce, delay_ms, error text, stack trace, failures that it counts
--            as: 0 or 1
-- REPLY srv_us, for each item: ok | repeated | stale, outcome (retried | buried)
-- USES children/children: call_back_dead
--      core/call: check_types, server_us
--      core/envelope: job_head
--      core/history: notes_kept
--      core/lane: due_member
--      core/lease: bury_job, end_lease, error_note, token_state
--      core/run: run_read
--      core/wake: append_events, wake_push

check_types({ active, due, dead }, { sweep, stats }, {})
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local reply, held, wakes = {}, {}, {}
for at = 1, (#KEYS - 5) / 2 do
  local id, fence, nonce = ARGV[7 * at - 4], ARGV[7 * at - 3], ARGV[7 * at - 2]
  local run = KEYS[5 + 2 * at]
  local job = job_head(KEYS[4 + 2 * at])
  local state, outcome, limits = token_state(run, job, fence, nonce)
  if state == 'held' and job.kind == 'J' then
    local charge = tonumber(ARGV[7 * at + 2])
    local failures = tonumber(run_read(run, 'failures')[1] or 0) + charge
    state, outcome = 'ok', charge > 0 and failures >= job.attempts and 'buried' or 'retried'
    check_types({}, {}, { prefix .. 'wake:' .. job.class })
    held[#held + 1] = { id = id, run = run, job = job, limits = limits, token = fence .. ':' .. nonce,
      outcome = outcome, failures = failures,
      -- anchor: failed-job-waits-its-full-backoff
      due_ms = now_ms + tonumber(ARGV[7 * at - 1]), note = error_note(run, now_ms, fence, 'failed', ARGV[7 * at], ARGV[7 * at + 1]) }
  elseif state == 'held' then
    -- It cannot be read: a sweep sets it aside when the lease ends.
    state = 'stale'
  end
  reply[#reply + 1] = state
  reply[#reply + 1] = outcome
end
local noted = redis.call('HMGET', stats, 'turn', 'events', 'history')
local virtual_time, events = tonumber(noted[1] or 0), notes_kept(noted[2], noted[3])
for _, lease in ipairs(held) do
  local member = due_member(lease.job.sequence, lease.id)
  if events then events[#events + 1] = { 'failed', lease.id, lease.job.name, lease.note[2] } end
  if lease.outcome == 'buried' then
    local fed = bury_job(prefix, lease.job, lease.id, now_ms, events, lease.note[2], lease.failures)
    if fed then
      call_back_dead(prefix, lease.job, lease.id, lease.note[2], now_ms, virtual_time, wakes, events)
    end
  else
    redis.call('ZADD', due, lease.due_ms, member) -- anchor: failed-job-is-due-before-its-lease-ends
  end
  end_lease(prefix, lease, lease.outcome, virtual_time, wakes, lease.note, lease.failures)
  -- anchor: first-due-retry-leaves-a-marker
  if redis.call('ZRANGE', due, 0, 0)[1] == member then wakes[prefix .. 'wake:' .. lease.job.class] = true end
end
for list in pairs(wakes) do wake_push(list) end
if events then append_events(prefix .. 'events', events) end
return { srv_us, reply }
