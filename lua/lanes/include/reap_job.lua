-- Take one lease away. Returns reaped | buried | corrupt | ended (only its index entry was left), fence, nonce ('-' where a sweep
-- that was cut off has taken it), crashes, and the wake list that gained work. `keys`: prefix, due, dead, stats.
-- helpers: envelope_open, due_member, to_lane, lane_score, bury_job
local function reap_job(keys, id, now_ms, helpers)
  local run = keys.prefix .. 'run:' .. id
  local job = helpers.envelope_open(redis.call('GETRANGE', keys.prefix .. 'job:' .. id, 0, 700))
  if not job or job.kind == 'T' then
    -- A finish that was cut off after its tombstone: the job has ended, only its lease is left.
    redis.call('DEL', run)
    return { 'ended' }
  end
  local state = redis.call('HMGET', run, 'fence', 'nonce', 'crashes', 'marked')
  local fence, nonce, crashes = state[1] or '0', state[2] or '', tonumber(state[3] or 0)
  local live = nonce ~= ''
  -- A bury or a retry that was cut off has already put the job among the dead or the due ones: it stays there.
  local dead = redis.call('ZSCORE', keys.dead, id)
  local placed = dead or job.kind == 'J' and redis.call('ZSCORE', keys.due, helpers.due_member(job.sequence, id))
  -- Rule 12: the first crash is counted and free; after it only a lease that was marked as started is charged.
  if live and (crashes == 0 or state[4] == fence .. ':' .. nonce) then crashes = crashes + 1 end
  local reason = job.kind == 'corrupt' and 'corrupt envelope'
    or crashes >= job.crashes_max and string.format('crashed %d times, %d are allowed', crashes, job.crashes_max - 1) or nil
  if reason and not (placed and not dead) then
    -- The token dies before the job does, or a late finish could still end a job that is among the dead. Cut off in between,
    -- the lease is still in `active`, and the next sweep finds the count of crashes.
    redis.call('HSET', run, 'nonce', '', 'crashes', crashes, 'error', reason)
    if not dead then helpers.bury_job(keys.dead, keys.stats, id, now_ms) end
    return { job.kind == 'corrupt' and 'corrupt' or 'buried', fence, live and nonce or '-', crashes }
  end
  local wake = not placed and helpers.to_lane(keys.prefix, id, job, helpers.lane_score) or nil
  if live then redis.call('HSET', run, 'nonce', '', 'crashes', crashes) end
  return { live and 'reaped' or 'ended', fence, nonce, crashes, wake }
end
