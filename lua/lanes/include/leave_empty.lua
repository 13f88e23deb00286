-- Forget a lane without jobs: it is no longer ready, nor parked. A claim would do so when it meets it.
-- helpers: ready_lane
local function leave_empty(prefix, lane, turn, helpers)
  if redis.call('ZCARD', prefix .. 'lane:' .. lane) > 0 then return end
  helpers.ready_lane(prefix, lane, turn)
  redis.call('ZREM', prefix .. 'ready:' .. string.match(lane, '^[^/]*'), lane)
end
