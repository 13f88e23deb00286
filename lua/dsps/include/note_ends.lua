-- Every 256 messages: all of the index up to this clock will have expired by this time. A fetch that finds the dead skips them by it.
-- Where there are many such marks, every other one goes.
local function note_ends(meta, clock, ends_ms)
  local marks, before_ms = {}, 0
  for at, then_ms in string.gmatch(redis.call('HGET', meta, 'ends') or '', '(%S+) (%S+)') do
    marks[#marks + 1], before_ms = at .. ' ' .. then_ms, tonumber(then_ms)
  end
  if #marks >= 512 then
    for at = 1, 256 do marks[at] = marks[2 * at] end
    for at = #marks, 257, -1 do marks[at] = nil end
  end
  marks[#marks + 1] = string.format('%d %d', clock, math.max(before_ms, ends_ms))
  redis.call('HSET', meta, 'ends', table.concat(marks, ' '))
end
