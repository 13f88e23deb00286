-- Lanes: the waiting jobs of a class and a key, and the index of lanes that are ready to be claimed from.
-- RARELY drop_run, limit_room, rate_back
-- USES core/lease: drop_run
--      core/limit: limit_room, rate_back

-- Rule 16: bands of 2^49, higher priority first; inside a band FIFO counts up from its middle, LIFO (flag 1)
-- down. The greatest score is 10 * 2^49 = 5.6e15 < 2^53, so a double holds every score exactly.
local function lane_score(priority, flags, sequence)
  local middle = (10 - priority) * BAND + BAND / 2 -- anchor: bands-are-2-49-wide
  if flags % 2 == 1 then return middle - sequence end -- anchor: lifo-jobs-go-in-front
  return middle + sequence
end

-- Rule 16: a member of `due` starts with the sequence as 10 base-32 digits, so equal due times keep the order
-- of enqueue.
local function due_member(sequence, id)
  local alphabet, digits = '0123456789abcdefghijklmnopqrstuv', {}
  for digit_at = 10, 1, -1 do
    local digit = sequence % 32
    digits[digit_at] = string.sub(alphabet, digit + 1, digit + 1)
    sequence = (sequence - digit) / 32
  end
  return table.concat(digits) .. id
end

-- Make a job claimable: add its lane to the ready lanes, then the job to its lane. This order is safe because
-- a claim drops an empty ready lane, but a lane that is not ready would never be found. Returns the wake list
-- to push; nil while the lane is parked, which becomes ready when its limit has room. `virtual_time` is the
-- queue's (rule 18).
local function to_lane(prefix, id, job, virtual_time)
  local score, wake = lane_score(job.priority, job.flags, job.sequence), nil
  if redis.call('HEXISTS', prefix .. 'parked', job.lane) == 0 then
    -- LT: a lane that is ready only moves ahead, for a job of a better band.
    -- anchor: urgent-job-moves-its-lane-ahead
    redis.call('ZADD', prefix .. 'ready:' .. job.class, 'LT', (10 - job.priority) * BAND + virtual_time, job.lane)
    wake = prefix .. 'wake:' .. job.class
  end
  redis.call('ZADD', prefix .. 'lane:' .. job.lane, score, id)
  return wake
end

-- Make a parked lane ready, with the band of its first job and the queue's virtual time as score (rule 18).
-- An empty lane is only removed. Returns the wake list to push, or nil. The entry in `parked:<limit>` or
-- `rest` is removed last, because a sweep must find the lane there after a script that was cut off.
local function ready_lane(prefix, lane, virtual_time)
  local waits = redis.call('HGET', prefix .. 'parked', lane)
  local head = redis.call('ZRANGE', prefix .. 'lane:' .. lane, 0, 0, 'WITHSCORES')
  local class, wake = string.match(lane, '^[^/]*'), nil
  if head[1] then
    redis.call('ZADD', prefix .. 'ready:' .. class, 'LT',
      math.floor(tonumber(head[2]) / BAND) * BAND + virtual_time, lane)
    wake = prefix .. 'wake:' .. class
  end
  redis.call('HDEL', prefix .. 'parked', lane)
  if waits == 'rest' then redis.call('ZREM', prefix .. 'rest', 'l:' .. lane) end
  if waits and waits ~= 'rest' then redis.call('ZREM', prefix .. 'parked:' .. waits, lane) end
  return wake
end

-- Remove a lane without jobs from the ready and the parked ones, as a claim would do when it reaches the
-- lane.
local function leave_empty(prefix, lane)
  if redis.call('ZCARD', prefix .. 'lane:' .. lane) > 0 then return end
  -- No job is there to need a virtual time.
  ready_lane(prefix, lane)
  redis.call('ZREM', prefix .. 'ready:' .. string.match(lane, '^[^/]*'), lane)
end

-- One page of the lanes that may hold jobs, some `bound` (default 500): the parked lanes, then the ready
-- lanes of each class. `cursor` is '' at first, then the one that the call before returned, '' at the end. A
-- lane that is there all the time is returned. It comes only once, unless an index changes its size so much
-- meanwhile that the server rebuilds it.
local function some_lanes(prefix, cursor, bound)
  bound = bound or 500
  local lanes, looked, parked = {}, 0, prefix .. 'parked'
  local outer, class, inner = string.match(cursor, '^(%d+) (%S+) (%d+)$')
  if not outer then
    local page = redis.call('HSCAN', parked, cursor == '' and '0' or cursor, 'COUNT', bound)
    for at = 1, #page[2], 2 do lanes[#lanes + 1] = page[2][at] end
    if page[1] ~= '0' then return lanes, page[1] end
    outer, inner = '0', '0'
  end
  local some_parked = redis.call('EXISTS', parked) == 1
  repeat
    local classes, first = redis.call('HSCAN', prefix .. 'classes', outer, 'COUNT', 100), 1
    for at = 1, #classes[2], 2 do first = classes[2][at] == class and at or first end
    for at = first, #classes[2], 2 do
      repeat
        if #lanes + looked >= bound then return lanes, outer .. ' ' .. classes[2][at] .. ' ' .. inner end
        local page = redis.call('ZSCAN', prefix .. 'ready:' .. classes[2][at], inner, 'COUNT', bound / 2)
        for item = 1, #page[2], 2 do
          local lane = page[2][item]
          if not some_parked or redis.call('HEXISTS', parked, lane) == 0 then lanes[#lanes + 1] = lane end
        end
        inner, looked = page[1], looked + 1
      until inner == '0'
    end
    outer, class = classes[1], nil
  until outer == '0'
  return lanes, ''
end

-- The last writes of a claim on one lane: remove the claimed jobs, then keep the lane ready for its next job,
-- park it, or drop it.
-- lane: name, class, zset, jobs, skipped, unread, blocked (the limit that it ran into), virtual_time, ended,
-- next_job. `ended` is a linked list of skipped jobs that have ended, with a `run` left over from a cancel
-- that was cut off. `next_job` is the first entry that stays, with its score; nil if unknown.
local function leave_lane(prefix, lane, now_ms)
  while lane.ended do
    if not redis.call('ZSCORE', prefix .. 'active', lane.ended[1]) then drop_run(prefix, lane.ended[1]) end
    lane.ended = lane.ended[2]
  end
  for _, ids in ipairs({ lane.jobs, lane.skipped, lane.unread }) do
    -- anchor: claimed-jobs-leave-their-lane
    for at = 1, #ids, PIECE do redis.call('ZREM', lane.zset, unpack(ids, at, math.min(at + PIECE - 1, #ids))) end
  end
  local head = lane.next_job or redis.call('ZRANGE', lane.zset, 0, 0, 'WITHSCORES')
  local room, until_ms = 1, nil
  -- Checked again, because the leases of this claim count by now.
  if lane.blocked then
    local ahead
    room, until_ms, ahead = limit_room(prefix, lane.blocked.limit, lane.blocked.definition, now_ms,
      lane.blocked.need)
    rate_back(prefix, lane.blocked.limit, ahead, now_ms)
  end
  if not head[1] then
    redis.call('ZREM', lane.class.ready, lane.name)
  elseif room <= 0 then
    local limit = lane.blocked.limit
    local waits = until_ms and 'rest' or limit
    -- The index in which it waits comes first, then the field in `parked`, and the ready lanes last, so that
    -- the lane is always in some index.
    if waits == 'rest' then
      redis.call('ZADD', prefix .. 'rest', until_ms, 'l:' .. lane.name)
    else
      redis.call('ZADD', prefix .. 'blocking', 'NX', now_ms, limit)
      redis.call('ZADD', prefix .. 'parked:' .. limit, now_ms, lane.name)
    end
    redis.call('HSET', prefix .. 'parked', lane.name, waits)
    redis.call('ZREM', lane.class.ready, lane.name)
  else
    local band = math.floor(tonumber(head[2]) / BAND)
    redis.call('ZADD', lane.class.ready, band * BAND + lane.virtual_time, lane.name)
  end
end

-- Make lanes of a key ready because its limit has changed, up to 100 of those that wait for a limit slot.
-- Claims check the new limit. With more than 500 classes it is too costly to find the resting lanes of this
-- key. Then the next sweeps bring back all resting lanes (mend_limits). The wake lists to push are added to
-- `wakes`.
local function lanes_back(prefix, key, virtual_time, wakes)
  local lanes, classes = redis.call('ZRANGE', prefix .. 'parked:k:' .. key, 0, 99), prefix .. 'classes'
  if redis.call('EXISTS', prefix .. 'rest', classes) < 2 then
    -- No lane rests.
  elseif redis.call('HLEN', classes) > 500 then
    redis.call('HSET', prefix .. 'sweep', 'rests_from_ms', 0)
  else
    local resting = redis.call('HKEYS', classes)
    for at, class in ipairs(resting) do resting[at] = class .. '/' .. key end
    for at, waits in ipairs(redis.call('HMGET', prefix .. 'parked', unpack(resting))) do
      if waits == 'rest' then lanes[#lanes + 1] = resting[at] end
    end
  end
  for _, lane in ipairs(lanes) do
    local wake = ready_lane(prefix, lane, virtual_time)
    redis.call('ZREM', prefix .. 'parked:k:' .. key, lane)
    if wake then wakes[wake] = true end
  end
end
