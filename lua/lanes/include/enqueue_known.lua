-- What an enqueue finds under its id (rule 3): nothing, or 'repeated' for another copy of the same call, or 'duplicate' with what
-- became of that job. Returns result, state and fence; nil where there is no such job.
-- keys: run, active, dead, due
local function enqueue_known(known, nonce, id, keys, due_member)
  if not known then return nil end
  if known.enqueue_nonce == nonce then return 'repeated', '', 0 end
  if known.kind == 'T' then return 'duplicate', known.outcome, tonumber(known.fence) end
  local fence = tonumber(redis.call('HGET', keys.run, 'fence') or 0)
  if redis.call('ZSCORE', keys.active, id) then return 'duplicate', 'active', fence end
  if redis.call('ZSCORE', keys.dead, id) then return 'duplicate', 'dead', fence end
  local delayed = known.kind == 'J' and redis.call('ZSCORE', keys.due, due_member(known.sequence, id))
  return 'duplicate', delayed and 'delayed' or 'waiting', fence
end
