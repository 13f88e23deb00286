-- Look at so many clocks, from the first one on in steps of 1 or -1: those that have a body, as text, and how long the last of them
-- will live, in ms.
local function look_around(clock_ahead, bodies, first, step, count)
  local found, clock, longest_ms = {}, first, 0
  for number = 1, count do
    local text = string.format('%d', clock)
    local left_ms = redis.call('PTTL', bodies .. text)
    if left_ms ~= -2 then
      found[#found + 1] = text
      longest_ms = math.max(longest_ms, left_ms == -1 and 9007199254740991 or left_ms)
    end
    if number < count then clock = clock_ahead(clock, step) end
  end
  return found, longest_ms
end
