-- Milliseconds until the next lease end, due time or end of a rest, at most `most_ms`: how long a sweeper may sleep (rule 13). While nothing is
-- reaped after a stall (rule 11), a lease that has run out is looked at again when that time is over, not at once. `also` is another
-- index to look at: the sweeps, which every worker does soon enough, look at the schedules, and claims do not.
local function next_ms(prefix, now_ms, most_ms, also)
  local sweep, active = prefix .. 'sweep', prefix .. 'active'
  local soonest = now_ms + most_ms
  for _, key in ipairs({ active, prefix .. 'due', prefix .. 'rest', also and prefix .. also }) do
    local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local at_ms = tonumber(head[2] or soonest)
    if key == active and at_ms <= now_ms then
      at_ms = math.max(at_ms, tonumber(redis.call('HGET', sweep, 'no_reap_before_ms') or 0))
    end
    soonest = math.min(soonest, at_ms)
  end
  return math.max(0, soonest - now_ms) -- anchor: sweep-sleeps-until-the-next-due-time
end
