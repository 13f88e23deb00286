-- The state of a job for people: as job_state has it, and `finished` also for one of which only `done` still knows. `job` is what
-- envelope_open made of it.
-- helpers: job_state, due_member
local function state_of(prefix, job, id, helpers)
  local state, fence = helpers.job_state(prefix, job, id, helpers)
  if state == 'rejected' or state == 'orphaned' then state = 'gone' end
  if state == 'gone' and redis.call('ZSCORE', prefix .. 'done', id) then state = 'finished' end
  return state, fence
end
