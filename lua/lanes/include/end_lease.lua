-- The last writes of giving a lease up while the job goes on: clear the token, keep it as the ended one, leave `active`.
-- The index that takes the job over is written before this, and `active` is left before the token is cleared: cut off in
-- between, the token still holds and the same call sent again does the rest (rule 1).
local function end_lease(run, active, id, token, outcome)
  redis.call('ZREM', active, id)
  redis.call('HSET', run, 'nonce', '', 'ended', token, 'outcome', outcome)
end
