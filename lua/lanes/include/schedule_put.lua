-- Define a schedule, or change it (rule 24). What keeps its timing keeps its next tick and its anchor; what is the same in all stays as it
-- is. Returns the reply. `given`: name, timing, policy, job, next_ms, anchor_ms, enabled, most; `mirror`: what else is to be written of it
-- where the call has done its part, with the next tick and the job.
-- keys: cron, schedule, stats, op
local function schedule_put(keys, given, srv_us, not_after_ms, mirror)
  local was = redis.call('HMGET', keys.schedule, 'version', 'timing', 'policy', 'job', 'enabled', 'next_ms')
  if not was[1] and redis.call('ZCARD', keys.cron) >= given.most then return { srv_us, 'done', 'full' } end
  local enabled, next_ms = given.enabled, given.next_ms
  if enabled == '' then enabled = was[1] and was[5] or '1' end
  local retimed = was[2] ~= given.timing
  -- One that was set aside for an error ticks again: whoever puts it could tell its next tick.
  if not retimed and was[5] == '1' and was[6] ~= '0' then next_ms = was[6] end
  if enabled ~= '1' then next_ms = '0' end
  local changed = retimed or was[3] ~= given.policy or was[4] ~= given.job

  -- The index before the hash: an entry without one is dropped by the sweeps, but a schedule that is not in the index would never tick.
  -- And the later of its two times not before the hash says so: cut off in between, a sweep that comes too early sets it right, one that
  -- comes too late would be too late.
  local due_ms = enabled == '1' and next_ms or '+inf'
  redis.call('ZADD', keys.cron, 'LT', due_ms, given.name)
  local fields = { 'enabled', enabled, 'next_ms', next_ms }
  if changed or next_ms ~= was[6] then
    fields[#fields + 1], fields[#fields + 2] = 'error', ''
  end
  if retimed then
    fields[#fields + 1], fields[#fields + 2] = 'anchor_ms', given.anchor_ms
  end
  if changed then
    local version = redis.call('HINCRBY', keys.stats, 'schedules', 1)
    for _, word in ipairs({ 'version', version, 'timing', given.timing, 'policy', given.policy, 'job', given.job }) do
      fields[#fields + 1] = word
    end
  end
  redis.call('HSET', keys.schedule, unpack(fields))
  redis.call('ZADD', keys.cron, due_ms, given.name)
  if mirror then mirror(given.name, tonumber(next_ms), given.job) end
  local found = not was[1] and 'new' or changed and 'changed' or 'same'
  redis.call('SET', keys.op, found, 'PXAT', not_after_ms + 20000)
  return { srv_us, 'done', found }
end
