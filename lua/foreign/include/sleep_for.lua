-- Milliseconds until the next lease end, due time, tick or end of a pause, at most `most_ms`: how long a sweeper may sleep (rule 13). While
-- nothing is reaped after a stall (rule 11), a lease that has run out is looked at again when that time is over, not at once.
local function sleep_for(prefix, now_ms, most_ms, model)
  local soonest, active = now_ms + most_ms, prefix .. 'active'
  for _, key in ipairs({ active, prefix .. 'rest', prefix .. 'cron' }) do
    local at_ms = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or soonest)
    if key == active and at_ms <= now_ms then
      at_ms = math.max(at_ms, tonumber(redis.call('HGET', prefix .. 'sweep', 'no_reap_before_ms') or 0))
    end
    soonest = math.min(soonest, at_ms)
  end
  return math.max(0, math.floor(math.min(soonest, model.next_due_ms() or soonest) - now_ms))
end
