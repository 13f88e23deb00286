-- The first schedules whose tick has come, at most `limit`: for each its name, version, next tick, anchor, timing and policy. Entries of
-- the index that a call which was cut off has left are set right here; a foreign value in place of a schedule is looked at again in a
-- minute, and holds up nothing.
local function due_schedules(prefix, now_ms, limit)
  local cron, due = prefix .. 'cron', {}
  local found = redis.call('ZRANGE', cron, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  for at = 1, #found, 2 do
    local name = found[at]
    local words = redis.pcall('HMGET', prefix .. 'cron:' .. name, 'version', 'next_ms', 'anchor_ms', 'timing', 'policy', 'enabled')
    local next_ms = words[6] == '1' and tonumber(words[2]) or 0
    if words.err then
      redis.call('ZADD', cron, now_ms + 60000, name)
    elseif not words[1] then
      redis.call('ZREM', cron, name)
    elseif next_ms ~= tonumber(found[at + 1]) then
      redis.call('ZADD', cron, next_ms > 0 and words[2] or '+inf', name)
    else
      due[#due + 1] = name
      for field = 1, 5 do due[#due + 1] = words[field] or '' end
    end
  end
  return due
end
