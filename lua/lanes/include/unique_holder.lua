-- The job that keeps another one from being enqueued (rule 23), '' for a key that is not asked for: the holder of its unique key,
-- unless that has ended, is dead, gone, or does not name the key any more; or the job that opened the window of its dedup key, whatever
-- became of it. Returns id, state and fence, or nil.
-- helpers: envelope_open, job_state, due_member
local function unique_holder(prefix, unique, dedup, id, helpers)
  local holder = unique ~= '' and redis.call('GET', prefix .. 'unique:' .. unique)
  if holder and holder ~= id then
    local job = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. holder, 0, 700))
    local state, fence = helpers.job_state(prefix, job, holder, helpers)
    if job and job.unique == unique and state ~= 'dead' then return holder, state, fence end -- anchor: unique-key-is-held
  end
  holder = dedup ~= '' and redis.call('GET', prefix .. 'dedup:' .. dedup)
  if holder and holder ~= id then
    local job = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. holder, 0, 700))
    return holder, helpers.job_state(prefix, job, holder, helpers)
  end
end
