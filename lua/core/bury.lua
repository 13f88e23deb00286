#!lua flags=allow-oom
-- End leases of jobs that must not run again without an admin action: they go to the dead, with the reason.
-- This call makes the callback of a buried job. The next sweep handles the jobs that need it (rule 25).
--
-- HEAD core/call
-- KEYS
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   stats    hash    counters
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   items    5 for each item: id, fence, nonce, error text, stack trace
-- REPLY srv_us, for each item: ok | repeated | stale, outcome
-- USES children/children: call_back_dead
--      core/call: check_types, server_us
--      core/envelope: job_head
--      core/history: notes_kept
--      core/lease: bury_job, end_lease, error_note, token_state
--      core/wake: append_events, wake_push

check_types({ active, dead }, { sweep, stats }, {})
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local reply, held, wakes = {}, {}, {}
for at = 1, (#KEYS - 4) / 2 do
  local id, fence, nonce = ARGV[5 * at - 2], ARGV[5 * at - 1], ARGV[5 * at]
  local run = KEYS[4 + 2 * at]
  local job = job_head(KEYS[3 + 2 * at])
  local state, outcome, limits = token_state(run, job, fence, nonce)
  if state == 'held' then
    held[#held + 1] = { id = id, run = run, job = job, limits = limits, token = fence .. ':' .. nonce,
      note = error_note(run, now_ms, fence, 'failed', ARGV[5 * at + 1], ARGV[5 * at + 2]) }
    state, outcome = 'ok', 'buried'
  end
  reply[#reply + 1] = state
  reply[#reply + 1] = outcome
end
local noted = redis.call('HMGET', stats, 'turn', 'events', 'history')
local virtual_time, events = tonumber(noted[1] or 0), notes_kept(noted[2], noted[3])
for _, lease in ipairs(held) do
  local fed = bury_job(prefix, lease.job, lease.id, now_ms, events, lease.note[2])
  if fed then
    call_back_dead(prefix, lease.job, lease.id, lease.note[2], now_ms, virtual_time, wakes, events)
  end
  end_lease(prefix, lease, 'buried', virtual_time, wakes, lease.note)
end
for list in pairs(wakes) do wake_push(list) end
if events then append_events(prefix .. 'events', events) end
return { srv_us, reply }
