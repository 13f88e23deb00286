-- Gets clocks in pairs; says of each one: whether it is later than the other; if so how far, and where as
-- many steps lead; and its neighbours. The functions of the clock stand before it.
local found = {}
for at = 1, #ARGV, 2 do
  local one, other = clock_of(ARGV[at], 'ARGV'), clock_of(ARGV[at + 1], 'ARGV')
  local later = clock_after(one, other)
  local steps = later and clock_steps(other, one) or 0
  found[#found + 1] = later and 1 or 0
  found[#found + 1] = string.format('%d', steps)
  found[#found + 1] = later and string.format('%d', clock_ahead(other, steps)) or ''
  found[#found + 1] = later and string.format('%d', clock_ahead(one, -steps)) or ''
  found[#found + 1] = string.format('%d', clock_ahead(one, 1))
  found[#found + 1] = string.format('%d', clock_ahead(one, -1))
end
return found
