#!lua flags=allow-oom
-- Give leases back: the jobs return to their place in the lane, and neither a failure nor a crash is charged.
-- What a job that was not started has taken of the window of a rate comes free as well, as long as the window
-- lasts (rule 20), and if its first worker gives it back it may expire as before (rule 38).
--
-- HEAD core/call
-- KEYS
--   active   zset    id by lease deadline (ms)
--   stats    hash    counters
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   items    4 for each item: id, fence, nonce, 1 where its handler was started and interrupted, else 0
-- REPLY srv_us, for each item: ok | repeated | stale, outcome
-- USES core/call: check_types, server_us
--      core/envelope: envelope_options, job_head
--      core/job: note_expiry
--      core/lane: lanes_back, to_lane
--      core/lease: end_lease, token_state
--      core/run: run_read
--      core/wake: append_events, wake_push

check_types({ active }, { sweep, stats }, {})
local srv_us = server_us(now_ms, sweep)
local reply, held, wakes = {}, {}, {}
for at = 1, (#KEYS - 3) / 2 do
  local id, run = ARGV[4 * at - 1], KEYS[3 + 2 * at]
  local fence, nonce = ARGV[4 * at], ARGV[4 * at + 1]
  local job = job_head(KEYS[2 + 2 * at])
  local state, outcome, limits = token_state(run, job, fence, nonce)
  if state == 'held' and job.kind == 'J' then
    check_types({ prefix .. 'lane:' .. job.lane, prefix .. 'ready:' .. job.class }, {},
      { prefix .. 'wake:' .. job.class })
    held[#held + 1] = { id = id, run = run, job = job, limits = limits, token = fence .. ':' .. nonce,
      fence = fence, started = ARGV[4 * at + 2] == '1' }
    state, outcome = 'ok', 'released'
  elseif state == 'held' then
    -- It cannot be read: a sweep sets it aside when the lease ends.
    state = 'stale'
  end
  reply[#reply + 1] = state
  reply[#reply + 1] = outcome
end
local noted = redis.call('HMGET', stats, 'turn', 'events')
local virtual_time, events = tonumber(noted[1] or 0), noted[2] and { keep = noted[2] }
for _, lease in ipairs(held) do
  -- Before the token ends: if the script is cut off in between, the entry leads to a job with a live token,
  -- and is dropped.
  local kept, unstarted = lease.job.options_at and run_read(lease.run, 'claims', 'unstarted') or {}, nil
  if kept[1] and not lease.started and tonumber(kept[1]) == tonumber(kept[2] or 0) + 1 then
    note_expiry(prefix, lease.job, lease.id, envelope_options(redis.call('GET',
      prefix .. 'job:' .. lease.id)))
    unstarted = { 'unstarted', kept[1] }
  end
  local wake = to_lane(prefix, lease.id, lease.job, virtual_time)
  for limit in string.gmatch(not lease.started and lease.limits or '', '%S+') do
    local rate, unit_name = prefix .. 'rate:' .. limit, lease.id .. ':' .. lease.fence
    if redis.call('ZSCORE', rate, unit_name) then
      -- The lanes first: if the script is cut off in between, the next copy finds the place still taken and
      -- does both.
      if string.sub(limit, 1, 2) == 'k:' then
        lanes_back(prefix, string.sub(limit, 3), virtual_time, wakes)
      end
      local unit_names, unit = { unit_name }, 2
      while redis.call('ZSCORE', rate, unit_name .. ':' .. unit) do
        unit_names[unit], unit = unit_name .. ':' .. unit, unit + 1
      end
      redis.call('ZREM', rate, unpack(unit_names)) -- anchor: unstarted-job-leaves-the-rate
    end
  end
  end_lease(prefix, lease, 'released', virtual_time, wakes, unstarted)
  if events then events[#events + 1] = { 'released', lease.id, lease.job.name } end
  if wake then wakes[wake] = true end
end
for list in pairs(wakes) do wake_push(list) end
if events then append_events(prefix .. 'events', events) end
return { srv_us, reply }
