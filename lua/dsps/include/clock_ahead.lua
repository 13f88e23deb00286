-- The clock that comes `steps` after this one, before it where that is negative: at most 2^53 - 1 of them.
local function clock_ahead(clock, steps)
  if steps > 0 and clock > 9007199254740991 - steps then return (clock - 9007199254740991) + (steps - 9007199254740991) - 1 end
  if steps < 0 and clock < -9007199254740991 - steps then return (clock + 9007199254740991) + (steps + 9007199254740991) + 1 end
  return clock + steps
end
