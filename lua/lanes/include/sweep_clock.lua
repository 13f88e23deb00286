-- What a sweep makes of the time, from what the sweeps before it kept (rules 10 and 11). Reads only.
-- Returns the longest lease, the time before which nothing may be reaped, and the fields to keep, in one HSET before any other
-- write: cut off after it, the next sweep still knows of the stall.
local function sweep_clock(sweep, active, now_ms, most_ms)
  local kept = redis.call('HMGET', sweep, 'max_lease_ms', 'recent_lease_ms', 'forgot_ms', 'last_sweep_ms', 'no_reap_before_ms')
  local lease_ms, recent_ms = tonumber(kept[1] or 0), tonumber(kept[2] or 0)
  -- The clock stepped back: what it has not reached yet counts as now.
  local forgot_ms = math.min(tonumber(kept[3] or now_ms), now_ms)
  local last_ms = math.min(tonumber(kept[4] or now_ms), now_ms)
  -- Every ten seconds: a longer lease than those given since is forgotten when none is left that ends after theirs could.
  local latest_ms = tonumber(redis.call('ZRANGE', active, -1, -1, 'WITHSCORES')[2] or 0)
  if recent_ms > 0 and now_ms - forgot_ms >= 10000 then
    if latest_ms <= now_ms + recent_ms then lease_ms = recent_ms end
    recent_ms, forgot_ms = 0, now_ms
  end
  -- Nobody swept for half a lease: the server stood still, and its workers must be heard before their leases are taken. Twice the
  -- caller's own interval is the least, for a sweeper that is slower than the shortest lease would otherwise never reap.
  local half_ms = math.floor(lease_ms / 2)
  local no_reap_before_ms = math.min(tonumber(kept[5] or 0), now_ms + half_ms)
  if now_ms - last_ms > math.max(half_ms, 2 * most_ms) then no_reap_before_ms = now_ms + half_ms end
  return lease_ms, no_reap_before_ms, { 'max_lease_ms', lease_ms, 'recent_lease_ms', recent_ms, 'forgot_ms', forgot_ms,
    'last_sweep_ms', now_ms, 'no_reap_before_ms', no_reap_before_ms }
end
