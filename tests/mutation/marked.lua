#!lua
local n = tonumber(ARGV[1])
local m = n
if n > 1 then
  if n > 5 then
    m = 5
    m = 6
  elseif n > 2 then m = 3 else
    m = 2
  end
  m = m + 1
end
return m
