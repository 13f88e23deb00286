-- The last writes of giving a lease up while the job goes on: clear the token, keep it as the ended one, leave `active`.
-- The index that takes the job over is written before this, and `active` is left before the token is cleared: cut off in
-- between, the token still holds and the same call sent again does the rest (rule 1).
local function end_lease(run, active, id, token, outcome, reason, failures)
  redis.call('ZREM', active, id)
  local fields = { 'nonce', '', 'ended', token, 'outcome', outcome }
  -- In the same write as the token: cut off in between, a failure would be charged again by the next send.
  if reason then fields[7], fields[8] = 'error', reason end
  if failures then fields[9], fields[10] = 'failures', failures end
  redis.call('HSET', run, unpack(fields))
end
