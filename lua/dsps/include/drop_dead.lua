-- Take those of these clocks whose message is gone out of the index. Mostly all are alive, which one command tells.
local function drop_dead(live, bodies, clocks)
  local keys, dead = {}, {}
  for at, clock in ipairs(clocks) do keys[at] = bodies .. clock end
  if #keys == 0 or redis.call('EXISTS', unpack(keys)) == #keys then return end
  for at, clock in ipairs(clocks) do
    if redis.call('EXISTS', keys[at]) == 0 then dead[#dead + 1] = clock end
  end
  if #dead > 0 then redis.call('ZREM', live, unpack(dead)) end
end
