-- Let a schedule tick from `next_ms` on, or not any more (0). One that ticks already keeps its next tick. Returns the reply. `mirror`: as in
-- schedule_put.
-- keys: cron, schedule, op
local function schedule_enable(keys, name, version, next_ms, srv_us, not_after_ms, mirror)
  local was = redis.call('HMGET', keys.schedule, 'version', 'enabled', 'next_ms', 'job')
  local enabled = next_ms ~= '0' and '1' or '0'
  local found = not was[1] and 'gone' or was[1] ~= version and 'other' or was[2] == enabled and was[3] ~= '0' and 'same' or 'changed'
  if found == 'changed' then
    -- As schedule_put does.
    local due_ms = enabled == '1' and next_ms or '+inf'
    redis.call('ZADD', keys.cron, 'LT', due_ms, name)
    redis.call('HSET', keys.schedule, 'enabled', enabled, 'next_ms', next_ms, 'error', '')
    redis.call('ZADD', keys.cron, due_ms, name)
  else
    next_ms = was[3]
  end
  if mirror and (found == 'changed' or found == 'same') then mirror(name, tonumber(next_ms), was[4]) end
  redis.call('SET', keys.op, found, 'PXAT', not_after_ms + 20000)
  return { srv_us, 'done', found }
end
