-- What became of a job: its state and its last fence. `job` is what envelope_open made of it; nil: it is gone.
-- helpers: due_member
local function job_state(prefix, job, id, helpers)
  if not job then return 'gone', 0 end
  if job.kind == 'T' then return job.outcome, tonumber(job.fence) end
  local fence = tonumber(redis.call('HGET', prefix .. 'run:' .. id, 'fence') or 0)
  if redis.call('ZSCORE', prefix .. 'active', id) then return 'active', fence end
  if redis.call('ZSCORE', prefix .. 'dead', id) then return 'dead', fence end
  local delayed = job.kind == 'J' and redis.call('ZSCORE', prefix .. 'due', helpers.due_member(job.sequence, id))
  if delayed then return 'delayed', fence end
  return redis.call('ZSCORE', prefix .. 'blocked', id) and 'blocked' or 'waiting', fence
end
