-- Where a channel is: its clock (nil for none), unless it was seen later (`last` by these scripts, `seen` by the caller): then it
-- has gone back and goes on from there. Returns the clock, nil where nobody knows of any, and whether it has gone back.
local function reckon(clock_after, clock, last, seen)
  local highest = last or seen
  if last and seen and clock_after(seen, last) then highest = seen end
  if highest and (not clock or clock_after(highest, clock)) then return highest, true end
  return clock, false
end
