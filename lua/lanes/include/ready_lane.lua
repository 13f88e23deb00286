-- Put a parked lane among the ready ones, by the band of its first job and the queue's virtual time (rule 18). An empty one is
-- only forgotten. Returns the wake list to push, or nil. The lane leaves its place of waiting last: cut off before, it is
-- found there again.
local function ready_lane(prefix, lane, turn)
  local waits = redis.call('HGET', prefix .. 'parked', lane)
  local head = redis.call('ZRANGE', prefix .. 'lane:' .. lane, 0, 0, 'WITHSCORES')
  local class, wake = string.match(lane, '^[^/]*'), nil
  if head[1] then
    redis.call('ZADD', prefix .. 'ready:' .. class, 'LT', math.floor(tonumber(head[2]) / 562949953421312) * 562949953421312 + turn, lane)
    wake = prefix .. 'wake:' .. class
  end
  redis.call('HDEL', prefix .. 'parked', lane)
  if waits == 'rest' then redis.call('ZREM', prefix .. 'rest', 'l:' .. lane) end
  if waits and waits ~= 'rest' then redis.call('ZREM', prefix .. 'parked:' .. waits, lane) end
  return wake
end
