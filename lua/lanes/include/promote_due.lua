-- Move due jobs into their lanes, at most `limit`. Returns how many, and the wake lists that gained work.
-- helpers: envelope_open, is_leased, to_lane, lane_score, bury_job
local function promote_due(prefix, due, active, dead, stats, now_ms, limit, helpers)
  local promoted, wakes = 0, {}
  for _, member in ipairs(redis.call('ZRANGE', due, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit)) do
    local id = string.sub(member, 11)
    local run = prefix .. 'run:' .. id
    local job = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. id, 0, 700))
    if job and job.kind == 'J' and not helpers.is_leased(run, active, id) then
      wakes[helpers.to_lane(prefix, id, job, helpers.lane_score)] = true
      promoted = promoted + 1
    elseif job and job.kind == 'corrupt' then
      helpers.bury_job(dead, stats, run, id, 'corrupt envelope', now_ms)
    end
    redis.call('ZREM', due, member)
  end
  return promoted, wakes
end
