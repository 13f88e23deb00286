-- Put a job among the dead. Its envelope stays, so that it can be looked at and requeued; `run` holds the reason. Its unique key
-- comes free, the reason is kept as its result, whoever waits for its end hears of it, and jobs that need it hear of it from the next
-- sweep (rule 25), and may read that reason however late they run (let_go). `job` is the opened envelope.
-- helpers: free_unique, error_ttl, tell_ended
local function bury_job(prefix, job, id, now_ms, helpers, reason)
  local ttl_ms, fed = helpers.error_ttl(prefix, id, job), redis.call('SISMEMBER', prefix .. 'feeding', id) == 1
  redis.call('ZADD', prefix .. 'dead', now_ms, id)
  redis.call('HINCRBY', prefix .. 'stats', 'buried', 1)
  if ttl_ms > 0 then
    local record = string.format('{"ok":false,"ended_ms":%d,"error":', now_ms) .. cjson.encode(reason) .. '}'
    if fed then redis.call('ZADD', prefix .. 'keeping', 'NX', now_ms, id) end
    redis.call('SET', prefix .. 'result:' .. id, record, 'PXAT', string.format('%d', now_ms + ttl_ms + (fed and 281474976710656 or 0)))
  end
  helpers.free_unique(prefix, job, id) -- anchor: dead-job-frees-its-unique-key
  if fed then redis.call('ZADD', prefix .. 'handing', now_ms, '-' .. id) end
  helpers.tell_ended(prefix, id)
  if helpers.events then table.insert(helpers.events, { 'buried', id, job.name, reason }) end
end
