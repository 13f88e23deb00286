-- The text of the clock, false for none; refused while the channel's slot moves between two nodes of a cluster (rules 1 and 27).
-- Both nodes refuse a command with two keys of which one is missing, and this pair always has one that is: what comes after it sees
-- all bodies, which are not in KEYS. Nothing was written yet, so the call is simply sent again.
local function settled_clock(well, clock, bodies)
  local pair = redis.pcall('MGET', clock, bodies .. 'absent')
  if pair.err then error({ err = 'TRYAGAIN the slot of the channel is on the move' }) end
  return pair[1] or well(clock, 'string', redis.pcall('GET', clock))
end
