-- Put a job among the dead. Its envelope stays, so that it can be looked at and requeued; `run` holds the reason. Its unique key
-- comes free, and those that wait for it hear of it from the next sweep (rule 25). `job` is the opened envelope.
-- helpers: free_unique
local function bury_job(prefix, job, id, now_ms, helpers)
  redis.call('ZADD', prefix .. 'dead', now_ms, id)
  redis.call('HINCRBY', prefix .. 'stats', 'buried', 1)
  helpers.free_unique(prefix, job, id)
  if redis.call('SISMEMBER', prefix .. 'feeding', id) == 1 then redis.call('ZADD', prefix .. 'handing', now_ms, '-' .. id) end
end
