-- What an enqueue finds under its id (rule 3): nothing, or 'repeated' for another copy of the same call, or 'duplicate' with what
-- became of that job. Returns result, state, fence and the id of the job that was there first; nil where there is none.
-- A call that was turned away by another job, or for the lack of a parent, has left a tombstone of its own, which names that one, so
-- its late copies are turned away as well; for other calls it is nothing.
-- helpers: envelope_open, job_state, due_member
local function enqueue_known(prefix, known, nonce, id, helpers)
  if not known then return nil end
  local same = known.enqueue_nonce == nonce -- anchor: another-enqueue-of-the-same-id-is-refused
  if known.outcome == 'orphaned' then
    if not same then return nil end
    return 'orphan', '', 0, known.nonce
  end
  if known.outcome == 'rejected' then
    if not same then return nil end
    local holder = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. known.nonce, 0, 700))
    local state, fence = helpers.job_state(prefix, holder, known.nonce, helpers)
    return 'duplicate', state, fence, known.nonce
  end
  if same then return 'repeated', '', 0, id end
  local state, fence = helpers.job_state(prefix, known, id, helpers)
  return 'duplicate', state, fence, id
end
