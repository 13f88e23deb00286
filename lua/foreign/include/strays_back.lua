-- Bring jobs back that a foreign client has taken and that it holds no more by the rule of its own format. Formats that take a job and
-- lock it in two steps leave it so for a moment, hence it must have been seen a second before. Returns the ids.
-- helpers: events
local function strays_back(prefix, active, now_ms, limit, model, helpers)
  local strays, back, seen = prefix .. 'strays', {}, {}
  local found = model.strays and model.strays(limit, function(id) return redis.call('ZSCORE', active, id) end) or {}
  for _, id in ipairs(found) do
    seen[id] = true
    local since_ms = tonumber(redis.call('ZSCORE', strays, id))
    if not since_ms or since_ms > now_ms then
      redis.call('ZADD', strays, now_ms, id)
    -- An id that we cannot say cannot be told; what is wrong with it is found when it is claimed.
    elseif now_ms - since_ms >= 1000 then
      local job = model.read(id)
      if job and job.kind == 'J' then
        model.back(id, job, true)
      else
        model.set_aside(id, nil, job and job.why or 'no job is behind this id')
        redis.call('HINCRBY', prefix .. 'stats', 'aside', 1)
      end
      redis.call('ZREM', strays, id)
      if #id <= 256 and string.find(id, '^[%w_.:>-]+$') then back[#back + 1] = id end
      if helpers.events then table.insert(helpers.events, { 'reaped', id, job and job.name or '', 'foreign' }) end
    end
  end
  for _, id in ipairs(redis.call('ZRANGE', strays, 0, 999)) do
    if not seen[id] then redis.call('ZREM', strays, id) end
  end
  return back
end
