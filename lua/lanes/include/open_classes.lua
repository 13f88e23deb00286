-- The classes that may be claimed now, each with the room that its limit leaves (rule 18): what a class may not do costs a claim
-- nothing for the lanes in it. Pauses and limits are those of its name, which other classes may share. Returns a table for each open class, and those of the closed ones whose rate window ends.
-- helpers: is_paused, limit_room
local function open_classes(prefix, names, now_ms, helpers)
  local open, closed, meters = {}, {}, {}
  local some_paused = redis.call('HLEN', prefix .. 'paused') > 0
  local some_limits = redis.call('HLEN', prefix .. 'limits') > 0
  for _, name in ipairs(names) do
    local class = { name = name, ready = prefix .. 'ready:' .. name, room = math.huge, picked = 0, passed = false }
    local limit = some_limits and 'n:' .. string.match(name, '^[^@]*')
    local definition = limit and redis.call('HGET', prefix .. 'limits', limit)
    if definition then
      class.limit = limit
      class.definition = definition
      local units, rate
      class.room, class.until_ms, class.ahead, units, rate = helpers.limit_room(prefix, class.limit, definition, now_ms)
      -- What is left of the window belongs to all classes of the name.
      meters[limit] = meters[limit] or { units = units, rate = rate }
      class.meter = meters[limit]
    end
    if not (some_paused and helpers.is_paused(prefix .. 'paused', name, now_ms)) then
      local list = class.room > 0 and open or closed
      list[#list + 1] = class
    end
  end
  return open, closed, some_limits
end
