#!lua flags=allow-oom
-- End leases of jobs that must not run again by themselves: they go to the dead, with the reason.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   stats    hash    counters
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   now_ms   '' or the time of a test
--   items    4 for each item: id, fence, nonce, error text
-- REPLY srv_us, for each item: ok | repeated | stale, outcome
-- @include server_us
-- @include check_types
-- @include envelope_open
-- @include token_state
-- @include bury_job
-- @include end_lease
local sweep = KEYS[1]
local active = KEYS[2]
local dead = KEYS[3]
local stats = KEYS[4]
local now_ms = ARGV[1]

check_types({ active, dead }, { sweep, stats }, {})
local srv_us = server_us(now_ms, sweep)
local reply, held = {}, {}
for at = 1, (#KEYS - 4) / 2 do
  local id, fence, nonce = ARGV[4 * at - 2], ARGV[4 * at - 1], ARGV[4 * at]
  local run = KEYS[4 + 2 * at]
  local job = envelope_open(redis.call('GETRANGE', KEYS[3 + 2 * at], 0, 700))
  local state, outcome = token_state(run, job, fence, nonce)
  if state == 'held' then
    held[#held + 1] = { id = id, run = run, token = fence .. ':' .. nonce, reason = ARGV[4 * at + 1] }
    state, outcome = 'ok', 'buried'
  end
  reply[#reply + 1] = state
  reply[#reply + 1] = outcome
end
for _, lease in ipairs(held) do
  bury_job(dead, stats, lease.id, math.floor(srv_us / 1000))
  end_lease(lease.run, active, lease.id, lease.token, 'buried', lease.reason)
end
return { srv_us, reply }
