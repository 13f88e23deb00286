-- Go on to the next living message of the index in (start, goal]: by what is known of when the dead ended, then one by one. Returns the
-- last clock before it, and how many looks are left.
local function pass_dead(live, bodies, start, goal, looks, helpers)
  local position, dead = helpers.skip_dead(start, goal), {}
  if position ~= start then
    -- They leave the index, but no more in one call than a look at each would have been.
    local passed = helpers.next_live(live, start, position, 1000)
    if #passed > 0 then redis.call('ZREM', live, unpack(passed)) end
  end
  if position == goal or looks == 0 then return position, looks end
  local page = helpers.next_live(live, position, goal, looks)
  if #page == 0 then return goal, looks end
  for _, clock in ipairs(page) do
    looks = looks - 1
    if redis.call('EXISTS', bodies .. clock) == 1 then break end
    dead[#dead + 1], position = clock, tonumber(clock)
  end
  if #dead > 0 then redis.call('ZREM', live, unpack(dead)) end
  return position, looks
end
