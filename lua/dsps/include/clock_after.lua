-- The one place in Lua where clocks are compared: whether `clock` is later than `other`, on the circle of whole numbers from
-- -(2^53 - 1) to 2^53 - 1, on which one of two is later if less than half the circle leads to it. Nothing here leaves the range in
-- which doubles are exact; the twin is engine/channels/clock.py.
local function clock_after(clock, other)
  if clock > other then return other >= 0 or clock <= 0 or clock <= 9007199254740991 + other end
  return clock < other and clock < 0 and other > 0 and other > 9007199254740991 + clock
end
