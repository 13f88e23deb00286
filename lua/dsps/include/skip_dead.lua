-- The last clock in (position, goal] up to which all of the index has expired for sure, position where there is none.
local function skip_dead(clock_after, meta, position, goal, now_ms)
  for at, ends_ms in string.gmatch(redis.call('HGET', meta, 'ends') or '', '(%S+) (%S+)') do
    local clock = tonumber(at)
    if tonumber(ends_ms) > now_ms or clock_after(clock, goal) then break end
    if clock_after(clock, position) then position = clock end
  end
  return position
end
