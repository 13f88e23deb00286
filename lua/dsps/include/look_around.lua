-- Look at so many clocks, from the first one on in steps of 1 or -1: those that have a body, as text.
local function look_around(clock_ahead, bodies, first, step, count)
  local found, clock = {}, first
  for number = 1, count do
    local text = string.format('%d', clock)
    if redis.call('EXISTS', bodies .. text) == 1 then found[#found + 1] = text end
    if number < count then clock = clock_ahead(clock, step) end
  end
  return found
end
