-- Take up to `count` of the oldest out of the index whose message is gone, `old` being the first of them: if these are alive, so are
-- mostly the others.
local function drop_dead(live, bodies, old, clock, count, helpers)
  local keys, dead = {}, {}
  for at, text in ipairs(old) do keys[at] = bodies .. text end
  if #keys == 0 or redis.call('EXISTS', unpack(keys)) == #keys then return end
  for _, text in ipairs(helpers.oldest(helpers.well, live, clock, count)) do
    if redis.call('EXISTS', bodies .. text) == 0 then dead[#dead + 1] = text end
  end
  if #dead > 0 then redis.call('ZREM', live, unpack(dead)) end
end
