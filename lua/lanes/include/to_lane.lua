-- Make a job claimable: into its lane at its place, and before that the lane among the ready ones: a claim drops a ready lane
-- that is empty, but nothing would find a lane that is not ready. Returns the wake list to push, nil while the lane is parked:
-- then it becomes ready by itself. `turn` is the queue's virtual time (rule 18).
local function to_lane(prefix, id, job, turn, lane_score)
  local score, wake = lane_score(job.priority, job.flags, job.sequence), nil
  if redis.call('HEXISTS', prefix .. 'parked', job.lane) == 0 then
    -- LT: a lane that is ready only moves ahead, for a job of a better band.
    -- anchor: urgent-job-moves-its-lane-ahead
    redis.call('ZADD', prefix .. 'ready:' .. job.class, 'LT', (10 - job.priority) * 562949953421312 + turn, job.lane)
    wake = prefix .. 'wake:' .. job.class
  end
  redis.call('ZADD', prefix .. 'lane:' .. job.lane, score, id)
  return wake
end
