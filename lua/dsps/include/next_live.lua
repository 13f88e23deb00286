-- The next clocks of the index in (position, goal] on the circle, as text; those before the wrap by themselves.
local function next_live(live, position, goal, count)
  local after = string.format('(%d', position)
  if position < goal then return redis.call('ZRANGE', live, after, string.format('%d', goal), 'BYSCORE', 'LIMIT', 0, count) end
  local found = redis.call('ZRANGE', live, after, '+inf', 'BYSCORE', 'LIMIT', 0, count)
  if #found > 0 then return found end
  return redis.call('ZRANGE', live, '-inf', string.format('%d', goal), 'BYSCORE', 'LIMIT', 0, count)
end
