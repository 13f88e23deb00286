-- Put a job among the dead, with the reason. Its envelope stays, so that it can be looked at and requeued.
local function bury_job(dead, stats, run, id, reason, now_ms)
  redis.call('ZADD', dead, now_ms, id)
  redis.call('HSET', run, 'error', reason)
  redis.call('HINCRBY', stats, 'buried', 1)
end
