-- Move due jobs into their lanes, at most `limit`. Returns how many, the wake lists that gained work, and the
-- ids that it could not read and buried.
-- helpers: envelope_open, to_lane, lane_score, bury_job
local function promote_due(prefix, due, dead, stats, now_ms, limit, helpers)
  local promoted, wakes, corrupt = 0, {}, {}
  for _, member in ipairs(redis.call('ZRANGE', due, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit)) do
    local id = string.sub(member, 11)
    local job = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. id, 0, 700))
    -- A job whose token still lives (a retry that was cut off) is sorted out by the claim that finds it.
    if job and job.kind == 'J' then
      wakes[helpers.to_lane(prefix, id, job, helpers.lane_score)] = true
      promoted = promoted + 1
    elseif job and job.kind == 'corrupt' then
      helpers.bury_job(dead, stats, id, now_ms)
      redis.call('HSET', prefix .. 'run:' .. id, 'error', 'corrupt envelope')
      corrupt[#corrupt + 1] = id
    end
    redis.call('ZREM', due, member)
  end
  return promoted, wakes, corrupt
end
