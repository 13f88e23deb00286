-- What became of a job that others wait for (rule 25): 'open' while it may still run, 'done', or 'lost' when it is dead or was ended
-- without its work; nil where nothing is known of it. `job` is what envelope_open made of it.
local function parent_fate(prefix, job, id)
  if job and job.kind ~= 'T' then return redis.call('ZSCORE', prefix .. 'dead', id) and 'lost' or 'open' end
  local outcome = job and job.outcome
  if outcome == 'finished' or outcome == 'skipped' then return 'done' end -- anchor: skipped-parent-counts-as-done
  -- anchor: discarded-parent-counts-as-lost
  if outcome == 'discarded' or outcome == 'cancelled' or outcome == 'rerouted' then return 'lost' end
  -- Its tombstone has expired, or another call has left its own under this id.
  if redis.call('ZSCORE', prefix .. 'done', id) then return 'done' end
  if redis.call('ZSCORE', prefix .. 'dead', id) then return 'lost' end
end
