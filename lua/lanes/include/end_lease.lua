-- The last writes of giving a lease up while the job goes on: free its slots, leave `active`, clear the token and keep it as the
-- ended one. lease: run, id, token, limits; `note`: what error_note says; `wakes` gains the lists to push.
-- The index that takes the job over is written before this, and `active` is left before the token is cleared: cut off in
-- between, the token still holds and the same call sent again does the rest (rule 1).
-- helpers: free_slots, ready_lane
local function end_lease(prefix, lease, outcome, turn, wakes, helpers, note, failures)
  local limited = lease.limits and lease.limits ~= ''
  if limited then helpers.free_slots(prefix, lease.limits, lease.id, turn, wakes, helpers) end
  redis.call('ZREM', prefix .. 'active', lease.id)
  local fields = { 'nonce', '', 'ended', lease.token, 'outcome', outcome }
  -- In the same write as the token: cut off in between, a failure would be charged again by the next send.
  for _, field in ipairs(note or {}) do fields[#fields + 1] = field end
  if failures then fields[#fields + 1], fields[#fields + 2] = 'failures', failures end
  if limited then fields[#fields + 1], fields[#fields + 2] = 'limits', '' end
  redis.call('HSET', lease.run, unpack(fields))
end
