-- What a sweep makes of the time, from what the sweeps before it kept (rules 10 and 11). Reads only.
-- Returns the longest lease, the time before which nothing may be reaped, and the fields to keep, in one HSET before any other
-- write: cut off after it, the next sweep still knows of the stall.
local function sweep_clock(sweep, active, now_ms, most_ms)
  local kept = redis.call('HMGET', sweep, 'max_lease_ms', 'recent_lease_ms', 'forgot_ms', 'last_sweep_ms', 'no_reap_before_ms',
    'least_lease_ms', 'recent_least_ms', 'waits', 'waits_from_ms')
  local lease_ms, recent_ms = tonumber(kept[1] or 0), tonumber(kept[2] or 0)
  local least_ms, recent_least_ms = tonumber(kept[6] or lease_ms), tonumber(kept[7] or 0)
  -- The clock stepped back: what it has not reached yet counts as now.
  local forgot_ms = math.min(tonumber(kept[3] or now_ms), now_ms)
  local last_ms = math.min(tonumber(kept[4] or now_ms), now_ms)
  -- Every ten seconds: a longer lease than those given since is forgotten when none is left that ends after theirs could.
  local latest_ms = tonumber(redis.call('ZRANGE', active, -1, -1, 'WITHSCORES')[2] or 0)
  if recent_ms > 0 and now_ms - forgot_ms >= 10000 then
    if latest_ms <= now_ms + recent_ms then lease_ms = recent_ms end
    if recent_least_ms > 0 then least_ms = recent_least_ms end
    recent_ms, recent_least_ms, forgot_ms = 0, 0, now_ms
  end
  -- Nobody swept for half of the shortest lease: the server stood still, and its workers must be heard before their leases are
  -- taken. Twice the caller's own interval is the least, for a sweeper that is slower than that would otherwise never reap; and
  -- who was waited for is not waited for again in the next breath, or sweeps that always come late would never reap either.
  local gap_ms, half_ms = now_ms - last_ms, math.floor(lease_ms / 2)
  local no_reap_before_ms = math.min(tonumber(kept[5] or 0), now_ms + half_ms) -- anchor: no-reap-time-follows-the-clock
  -- But a gap that began when sweeps had come in time since the wait did is another stall, whose workers are waited for, once.
  local waits, from_ms = tonumber(kept[8] or 0), math.min(tonumber(kept[9] or 0), now_ms)
  local again = no_reap_before_ms > last_ms and now_ms >= no_reap_before_ms
  local heard = again and (last_ms <= from_ms or waits > 1)
  if not heard and gap_ms > math.max(math.floor(least_ms / 2), 2 * most_ms) then
    -- A lease that a live worker renews has two thirds left at least. So the gap has ended only those of at most 1.5 times its
    -- length, and half of such a lease, three quarters of the gap, is enough for its worker to be heard.
    no_reap_before_ms = now_ms + math.min(half_ms, math.max(math.floor(least_ms / 2), math.floor(gap_ms * 3 / 4)))
    waits, from_ms = again and waits + 1 or 1, now_ms
  end
  local keep = { 'max_lease_ms', lease_ms, 'recent_lease_ms', recent_ms,
    'least_lease_ms', least_ms, 'recent_least_ms', recent_least_ms, 'forgot_ms', forgot_ms,
    'last_sweep_ms', now_ms, 'no_reap_before_ms', no_reap_before_ms, 'waits', waits, 'waits_from_ms', from_ms }
  -- Rests that began before the clock stepped back end too late.
  if tonumber(kept[4] or now_ms) > now_ms then keep[#keep + 1], keep[#keep + 2] = 'rests_from_ms', now_ms end
  return lease_ms, no_reap_before_ms, keep
end
