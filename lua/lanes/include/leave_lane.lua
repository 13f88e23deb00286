-- The last writes of a claim on one lane: what was taken leaves it; then it is ready for its next job, parked, or forgotten.
-- lane: name, class, zset, jobs, skipped, unread, blocked (the limit that it ran into), turn, ended (a chain of those skipped whose job
-- has ended and has left its `run`: a cancel that was cut off).
-- helpers: limit_room, rate_back, drop_run, free_unique
local function leave_lane(prefix, lane, now_ms, helpers)
  while lane.ended do
    if not redis.call('ZSCORE', prefix .. 'active', lane.ended[1]) then helpers.drop_run(prefix, lane.ended[1], helpers) end
    lane.ended = lane.ended[2]
  end
  for _, ids in ipairs({ lane.jobs, lane.skipped, lane.unread }) do
    -- anchor: claimed-jobs-leave-their-lane
    for at = 1, #ids, PIECE do redis.call('ZREM', lane.zset, unpack(ids, at, math.min(at + PIECE - 1, #ids))) end
  end
  local head = redis.call('ZRANGE', lane.zset, 0, 0, 'WITHSCORES')
  local room, until_ms, ahead = 1, nil, nil
  -- Asked once more: what was taken counts by now.
  if lane.blocked then
    room, until_ms, ahead = helpers.limit_room(prefix, lane.blocked.limit, lane.blocked.definition, now_ms, lane.blocked.need)
    helpers.rate_back(prefix, lane.blocked.limit, ahead, now_ms)
  end
  if not head[1] then
    redis.call('ZREM', lane.class.ready, lane.name)
  elseif room <= 0 then
    local limit = lane.blocked.limit
    local waits = until_ms and 'rest' or limit
    -- The place where it waits, the word that it waits, and only then out of the ready ones: it is always found somewhere.
    if waits == 'rest' then
      redis.call('ZADD', prefix .. 'rest', until_ms, 'l:' .. lane.name)
    else
      redis.call('ZADD', prefix .. 'blocking', 'NX', now_ms, limit)
      redis.call('ZADD', prefix .. 'parked:' .. limit, now_ms, lane.name)
    end
    redis.call('HSET', prefix .. 'parked', lane.name, waits)
    redis.call('ZREM', lane.class.ready, lane.name)
  else
    local band = math.floor(tonumber(head[2]) / 562949953421312)
    redis.call('ZADD', lane.class.ready, band * 562949953421312 + lane.turn, lane.name)
  end
end
