-- Rules 10 and 11: keep the lengths of the queue's longest and shortest lease, and do so before a lease of this length is written.
-- The `recent_` ones are of the time since the sweep last forgot: what outlives its last user would hold a queue up, or blind it to
-- stalls, for ever.
local function note_lease(sweep, lease_ms)
  local known = redis.call('HMGET', sweep, 'max_lease_ms', 'recent_lease_ms', 'least_lease_ms', 'recent_least_ms')
  local recent_ms, recent_least_ms = tonumber(known[2] or 0), tonumber(known[4] or 0)
  local shorter = recent_least_ms == 0 or recent_least_ms > lease_ms
  if recent_ms >= lease_ms and not shorter then return end
  local least_ms = tonumber(known[3] or 0)
  redis.call('HSET', sweep, 'max_lease_ms', math.max(tonumber(known[1] or 0), lease_ms), 'recent_lease_ms', math.max(recent_ms, lease_ms),
    'least_lease_ms', least_ms > 0 and math.min(least_ms, lease_ms) or lease_ms, 'recent_least_ms', shorter and lease_ms or recent_least_ms)
end
