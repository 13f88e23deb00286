-- Up to `most` living messages of the index in (own, goal], as clock and body, of about 1 MiB and at least one; those of the index
-- that have expired leave it. Returns them, and the clock up to which there are no others.
local function living(live, bodies, own, goal, most, looks, helpers)
  local items, bytes, position = {}, 0, own
  while position ~= goal and looks > 0 do
    -- Bodies may be large: a page is about what there is room for, going by those that have come.
    local count = #items / 2
    local room = count == 0 and 16 or math.ceil((1048576 - bytes) * count / bytes) + 1
    local page = helpers.next_live(live, position, goal, math.min(room, looks, most - count + 1))
    if #page == 0 then position = goal break end
    local keys, dead = {}, {}
    for at, clock in ipairs(page) do keys[at] = bodies .. clock end
    local full = false
    for at, body in ipairs(redis.call('MGET', unpack(keys))) do
      if not body then
        dead[#dead + 1] = page[at]
      elseif #items / 2 == most or #items > 0 and bytes + #body > 1048576 then
        full = true
        break
      else
        items[#items + 1], items[#items + 2], bytes = page[at], body, bytes + #body
      end
      position = tonumber(page[at])
    end
    if #dead > 0 then redis.call('ZREM', live, unpack(dead)) end
    if full then return items, #items > 0 and tonumber(items[#items - 1]) or own end
    looks = looks - #page
    if #dead == #page then position, looks = helpers.pass_dead(live, bodies, position, goal, looks, helpers) end
  end
  return items, position
end
