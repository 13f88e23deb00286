-- Rules 10 and 11: keep the length of the queue's longest lease, and do so before a lease of this length is written.
-- `recent_lease_ms` is the longest since the sweep last forgot: what outlives its last user would hold a queue up for ever.
local function note_lease(sweep, lease_ms)
  local known = redis.call('HMGET', sweep, 'max_lease_ms', 'recent_lease_ms')
  if tonumber(known[2] or 0) >= lease_ms then return end
  redis.call('HSET', sweep, 'max_lease_ms', math.max(tonumber(known[1] or 0), lease_ms), 'recent_lease_ms', lease_ms)
end
