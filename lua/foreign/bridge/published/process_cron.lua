#!lua flags=allow-oom
-- BridgeMQ's cron: entries whose time has come go to the end of the waiting jobs, and the reply lists what the caller has to
-- reschedule. Slots and reply are those of the original. An entry that is still waiting or active from an earlier pass is listed
-- again and not enqueued again. An entry without a readable schedule does not block the others: it is tried again in a minute.
--
-- KEYS
--   cron         zset    id by its next tick (ms)
--   waiting      list    ids
--   dataPrefix   prefix of the keys of jobs; not a key itself
-- ARGV
--   currentTime  ms
--   batchSize    most entries to read, 100 by default
-- REPLY a JSON array of jobId, cronExpression and timezone; `{}` when nothing is due
local cron = KEYS[1]
local waiting = KEYS[2]
local data_prefix = KEYS[3]
local now_ms, most = ARGV[1], tonumber(ARGV[2]) or 100

local found = redis.call('ZRANGEBYSCORE', cron, 0, now_ms, 'LIMIT', 0, most)
redis.call('LLEN', waiting)
local active = string.match(waiting, '^(.*)waiting$')
local due_jobs = {}
for _, id in ipairs(found) do
  local raw = redis.pcall('GET', data_prefix .. id)
  local read, job = pcall(cjson.decode, raw)
  local schedule = read and type(job) == 'table' and job.schedule
  if raw == false then
    redis.call('ZREM', cron, id)
  elseif type(schedule) ~= 'table' or type(schedule.cron) ~= 'string' then
    redis.call('ZADD', cron, 'XX', string.format('%d', tonumber(now_ms) + 60000), id)
  else
    local running = active and redis.pcall('SISMEMBER', active .. 'active', id) == 1
    if not running and not redis.call('LPOS', waiting, id) then redis.call('RPUSH', waiting, id) end
    local zone = schedule.timezone
    due_jobs[#due_jobs + 1] = { jobId = id, cronExpression = schedule.cron, timezone = type(zone) == 'string' and zone or nil }
  end
end
return cjson.encode(due_jobs)
