-- The last writes of giving a lease up while the job goes on: clear the token, keep it as the ended one, leave `active`.
-- The index that takes the job over is written before this (rule 1).
local function end_lease(run, active, id, token, outcome)
  redis.call('HSET', run, 'nonce', '', 'ended', token, 'outcome', outcome)
  redis.call('ZREM', active, id)
end
