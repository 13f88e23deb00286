-- Make a job claimable: into its lane at its place, and the lane among the ready ones. Returns the wake list to push.
local function to_lane(prefix, id, job, lane_score)
  redis.call('ZADD', prefix .. 'lane:' .. job.lane, lane_score(job.priority, job.flags, job.sequence), id)
  redis.call('ZADD', prefix .. 'ready:' .. job.class, 'NX', 0, job.lane)
  return prefix .. 'wake:' .. job.class
end
