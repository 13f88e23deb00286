-- Make a job claimable: into its lane at its place, and before that the lane among the ready ones: a claim drops a ready lane
-- that is empty, but nothing would find a lane that is not ready. Returns the wake list to push.
local function to_lane(prefix, id, job, lane_score)
  redis.call('ZADD', prefix .. 'ready:' .. job.class, 'NX', 0, job.lane)
  redis.call('ZADD', prefix .. 'lane:' .. job.lane, lane_score(job.priority, job.flags, job.sequence), id)
  return prefix .. 'wake:' .. job.class
end
