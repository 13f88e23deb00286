-- What a token may still do (rules 5 and 6): 'held'; 'repeated' and the outcome that ended it; or 'stale', with `cancelled`
-- where that was why. The third value are the
-- limits that the lease counts against, where it is held. `job` is the opened envelope or tombstone of the same id, `fence` and
-- `nonce` are strings.
local function token_state(run, job, fence, nonce)
  if job and job.kind == 'T' then
    if job.fence == fence and job.nonce == nonce then return 'repeated', job.outcome end -- anchor: tombstone-knows-its-token
    return 'stale', job.outcome == 'cancelled' and 'cancelled' or '' -- anchor: cancelled-holder-is-told
  end
  local state = redis.call('HMGET', run, 'fence', 'nonce', 'limits')
  if job and state[1] == fence and state[2] == nonce then return 'held', '', state[3] end
  local ended = redis.call('HMGET', run, 'ended', 'outcome')
  if ended[1] == fence .. ':' .. nonce then return 'repeated', ended[2] end -- anchor: last-ended-token-is-known
  return 'stale', ''
end
