-- The last parent of a job has ended: the job goes into its lane, or into `due` while its delay lasts (rule 25). The place first, and
-- out of `blocked` last: cut off in between, it is found there again; what was claimed or buried meanwhile is not placed twice.
-- The wake lists that gain work are added to `wakes`.
-- helpers: due_member, to_lane, lane_score
local function unblock_job(prefix, job, id, now_ms, turn, wakes, helpers)
  if redis.call('HEXISTS', prefix .. 'run:' .. id, 'fence') == 0 and not redis.call('ZSCORE', prefix .. 'dead', id) then
    local wake
    if job.due_ms > now_ms then -- anchor: unblocked-job-waits-for-its-own-time
      local member = helpers.due_member(job.sequence, id)
      redis.call('ZADD', prefix .. 'due', job.due_ms, member)
      wake = redis.call('ZRANGE', prefix .. 'due', 0, 0)[1] == member and prefix .. 'wake:' .. job.class
    else
      wake = helpers.to_lane(prefix, id, job, turn, helpers.lane_score)
    end
    if wake then wakes[wake] = true end
    if helpers.events then table.insert(helpers.events, { 'unblocked', id, job.name }) end
  end
  redis.call('ZREM', prefix .. 'blocked', id)
end
