-- The first clocks of the index, as text: those before the wrap come first.
local function oldest(well, live, clock, count)
  if clock < 0 then
    local before = well(live, 'zset', redis.pcall('ZRANGE', live, 1, '+inf', 'BYSCORE', 'LIMIT', 0, count))
    if #before > 0 then return before end
  end
  return well(live, 'zset', redis.pcall('ZRANGE', live, 0, count - 1))
end
