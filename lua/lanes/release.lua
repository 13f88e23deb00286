#!lua flags=allow-oom
-- Give leases back: the jobs return to their place in the lane and neither a failure nor a crash is charged.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   active   zset    id by lease deadline (ms)
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   now_ms   '' or the time of a test
--   prefix   prefix of the queue's keys
--   items    3 for each item: id, fence, nonce
-- REPLY srv_us, for each item: ok | repeated | stale, outcome
-- @include server_us
-- @include check_types
-- @include envelope_open
-- @include token_state
-- @include lane_score
-- @include to_lane
-- @include end_lease
-- @include wake_push
local sweep = KEYS[1]
local active = KEYS[2]
local now_ms = ARGV[1]
local prefix = ARGV[2]

check_types({ active }, { sweep }, {})
local srv_us = server_us(now_ms, sweep)
local reply, held = {}, {}
for at = 1, (#KEYS - 2) / 2 do
  local id, run = ARGV[3 * at], KEYS[2 + 2 * at]
  local fence, nonce = ARGV[3 * at + 1], ARGV[3 * at + 2]
  local job = envelope_open(redis.call('GETRANGE', KEYS[1 + 2 * at], 0, 700))
  local state, outcome = token_state(run, job, fence, nonce)
  if state == 'held' and job.kind == 'J' then
    check_types({ prefix .. 'lane:' .. job.lane, prefix .. 'ready:' .. job.class }, {}, { prefix .. 'wake:' .. job.class })
    held[#held + 1] = { id = id, run = run, job = job, token = fence .. ':' .. nonce }
    state, outcome = 'ok', 'released'
  end
  reply[#reply + 1] = state
  reply[#reply + 1] = outcome
end
for _, lease in ipairs(held) do
  local wake = to_lane(prefix, lease.id, lease.job, lane_score)
  end_lease(lease.run, active, lease.id, lease.token, 'released')
  wake_push(wake)
end
return { srv_us, reply }
