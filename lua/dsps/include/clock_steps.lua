-- How many steps lead forward from one clock to a later one: at most 2^53 - 1.
local function clock_steps(from, to)
  if to >= from then return to - from end
  return (9007199254740991 - from) + (to + 9007199254740991) + 1
end
