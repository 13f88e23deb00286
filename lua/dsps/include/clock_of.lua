-- A clock from its decimal digits as some key holds it, nil for none. Anything else is not ours to guess.
local function clock_of(text, key)
  if not text then return nil end
  local clock = tonumber(text)
  if not string.match(text, '^%-?%d+$') or clock > 9007199254740991 or clock < -9007199254740991 then
    error({ err = 'IRONCLAIM no clock from -(2^53 - 1) to 2^53 - 1 in ' .. key .. ': ' .. string.sub(text, 1, 40) })
  end
  return clock
end
