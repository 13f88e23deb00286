#!lua
-- a comment: if a < b then
local function f(a, b)
  if a < b and not x then return 1 end
  -- more: a == b
  redis.call('SET', key, a, 'NX')
  told[1] = 'said < that'
  return b
end
