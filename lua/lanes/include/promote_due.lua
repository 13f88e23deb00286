-- Move due jobs into their lanes, and bring back what rested until now: at most `limit` of each. Returns how many jobs, the wake
-- lists that gained work, and the ids that it could not read and buried.
-- helpers: envelope_open, due_member, to_lane, lane_score, bury_job, free_unique, ready_lane, error_ttl, tell_ended, drop_run
local function promote_due(prefix, turn, now_ms, limit, helpers)
  local due, rest, promoted, wakes, corrupt = prefix .. 'due', prefix .. 'rest', 0, {}, {}
  -- anchor: delayed-jobs-are-promoted-on-time
  for _, member in ipairs(redis.call('ZRANGE', due, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit)) do
    local id = string.sub(member, 11)
    local job = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. id, 0, 700))
    -- A job whose token still lives (a retry that was cut off) is sorted out by the claim that finds it.
    if job and job.kind == 'J' and helpers.due_member(job.sequence, id) ~= member then
      -- Of an enqueue that was cut off: the job of this id came later and has an entry of its own, or needs none.
    elseif job and job.kind == 'J' then
      local wake = helpers.to_lane(prefix, id, job, turn, helpers.lane_score)
      if wake then wakes[wake] = true end
      promoted = promoted + 1
      if helpers.events then table.insert(helpers.events, { 'promoted', id, job.name }) end
    elseif job and job.kind == 'corrupt' then
      helpers.bury_job(prefix, {}, id, now_ms, helpers, 'corrupt envelope')
      redis.call('HSET', prefix .. 'run:' .. id, 'error', 'corrupt envelope')
      corrupt[#corrupt + 1] = id
    elseif not redis.call('ZSCORE', prefix .. 'active', id) then
      -- What a cancel that was cut off has left.
      helpers.drop_run(prefix, id, helpers)
    end
    redis.call('ZREM', due, member)
  end
  -- anchor: resting-lanes-return-on-time
  for _, member in ipairs(redis.call('ZRANGE', rest, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit)) do
    local name, wake = string.sub(member, 3), nil
    if string.sub(member, 1, 2) == 'l:' then
      wake = helpers.ready_lane(prefix, name, turn)
      if wake then wakes[wake] = true end
    else
      local classes = name == '*' and table.concat(redis.call('HKEYS', prefix .. 'classes'), ' ')
        or name .. (redis.call('HGET', prefix .. 'routed', name) or '')
      for class in string.gmatch(classes, '%S+') do
        if redis.call('ZCARD', prefix .. 'ready:' .. class) > 0 then wakes[prefix .. 'wake:' .. class] = true end
      end
    end
    redis.call('ZREM', rest, member)
  end
  return promoted, wakes, corrupt
end
