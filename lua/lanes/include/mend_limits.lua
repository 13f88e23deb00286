-- Compare what counts against limits with what is leased, and let lanes come back that no longer need to wait (rule 20): for each
-- class, and for the up to 100 limits with parked lanes that were not looked at for the longest time. Slots are freed by whatever
-- ends a lease; this mends what an interrupted script or a changed limit has left. A pause that a clock which stepped back has left
-- too far ahead is brought to its own length; rests that it has left ahead, or that a changed limit may end, end now, 1,000 in
-- a call: the next claim makes them anew where they are due (rule 10). Returns whether some wait to be looked at.
-- helpers: limit_room, ready_lane
local function mend_limits(prefix, sweep, now_ms, turn, wakes, helpers)
  local kept, rest = redis.call('HMGET', sweep, 'rests_from_ms', 'limits_changed_ms'), prefix .. 'rest'
  local more = false
  if kept[1] then
    local page = redis.call('ZRANGE', rest, kept[1], '+inf', 'BYSCORE', 'LIMIT', 0, PIECE, 'WITHSCORES')
    for at = 1, #page, 2 do
      if string.sub(page[at], 1, 2) == 'l:' then
        local wake = helpers.ready_lane(prefix, string.sub(page[at], 3), turn)
        redis.call('ZREM', rest, page[at])
        if wake then wakes[wake] = true end
      else
        redis.call('ZADD', rest, 'XX', now_ms, page[at])
      end
    end
    more = #page == 2 * PIECE
    if more then redis.call('HSET', sweep, 'rests_from_ms', page[2 * PIECE]) else redis.call('HDEL', sweep, 'rests_from_ms') end
  end
  local pauses = redis.call('HGETALL', prefix .. 'paused')
  for at = 1, #pauses, 2 do
    local until_ms, length_ms = string.match(pauses[at + 1], '^(%d+) (%d+)$')
    if tonumber(until_ms) > now_ms + tonumber(length_ms) then
      redis.call('HSET', prefix .. 'paused', pauses[at], string.format('%d %s', now_ms + length_ms, length_ms))
      until_ms = now_ms + length_ms
    elseif tonumber(until_ms) > 0 and tonumber(until_ms) <= now_ms then
      redis.call('HDEL', prefix .. 'paused', pauses[at])
    end
    -- Its marker is due when it ends, whatever has brought it forward.
    if tonumber(until_ms) > now_ms then redis.call('ZADD', rest, 'NX', until_ms, 'w:' .. pauses[at]) end
  end
  local limits = redis.call('ZRANGE', prefix .. 'blocking', 0, 99)
  local keys = #limits
  local named = {}
  for _, class in ipairs(redis.call('HKEYS', prefix .. 'classes')) do
    local limit = 'n:' .. string.match(class, '^[^@]*')
    if not named[limit] then limits[#limits + 1] = limit end
    named[limit] = true
  end
  for at, limit in ipairs(limits) do
    local held = prefix .. 'held:' .. limit
    for _, id in ipairs(redis.call('ZRANGE', held, '-inf', '(' .. string.format('%d', now_ms), 'BYSCORE', 'LIMIT', 0, 100)) do
      if not redis.call('ZSCORE', prefix .. 'active', id) then redis.call('ZREM', held, id) end
    end
    if at <= keys then
      local definition = redis.call('HGET', prefix .. 'limits', limit) or redis.call('HGET', prefix .. 'limits', 'k:*')
      local parked = prefix .. 'parked:' .. limit
      if not definition or helpers.limit_room(prefix, limit, definition, now_ms) > 0 then
        for _, lane in ipairs(redis.call('ZRANGE', parked, 0, 99)) do
          local wake = helpers.ready_lane(prefix, lane, turn)
          redis.call('ZREM', parked, lane)
          if wake then wakes[wake] = true end
        end
      end
      if redis.call('ZCARD', parked) > 0 then
        redis.call('ZADD', prefix .. 'blocking', now_ms, limit)
      else
        redis.call('ZREM', prefix .. 'blocking', limit)
      end
    end
  end
  local oldest = redis.call('ZRANGE', prefix .. 'blocking', 0, 0, 'WITHSCORES')
  return more or oldest[2] ~= nil and tonumber(oldest[2]) < math.min(tonumber(kept[2] or 0), now_ms + 1)
end
