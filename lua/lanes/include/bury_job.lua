-- Put a job among the dead. Its envelope stays, so that it can be looked at and requeued; `run` holds the reason.
local function bury_job(dead, stats, id, now_ms)
  redis.call('ZADD', dead, now_ms, id)
  redis.call('HINCRBY', stats, 'buried', 1)
end
