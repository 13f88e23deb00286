-- Put a job among the dead. Its envelope stays, so that it can be looked at and requeued; `run` holds the reason. Its unique key
-- comes free. `job` is the opened envelope.
-- helpers: free_unique
local function bury_job(prefix, job, id, now_ms, helpers)
  redis.call('ZADD', prefix .. 'dead', now_ms, id)
  redis.call('HINCRBY', prefix .. 'stats', 'buried', 1)
  helpers.free_unique(prefix, job, id)
end
