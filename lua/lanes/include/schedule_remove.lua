-- Forget a schedule. Returns the reply. `mirror`: as in schedule_put, without a job.
-- keys: cron, schedule, op
local function schedule_remove(keys, name, srv_us, not_after_ms, mirror)
  local found = redis.call('ZSCORE', keys.cron, name) and 'changed' or 'gone'
  -- The index last, and due before that: cut off in between, the next copy still finds it, and the next sweep sees what is right.
  redis.call('ZADD', keys.cron, 'XX', 1, name)
  redis.call('DEL', keys.schedule)
  if mirror and found == 'changed' then mirror(name, 0) end
  redis.call('ZREM', keys.cron, name)
  redis.call('SET', keys.op, found, 'PXAT', not_after_ms + 20000)
  return { srv_us, 'done', found }
end
