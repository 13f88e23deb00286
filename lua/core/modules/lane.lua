-- Lanes: the waiting jobs of a class and a key, and the index of lanes that are ready to be claimed from.

-- Rule 16: bands of 2^49, higher priority first; inside a band FIFO counts up from its middle, LIFO (flag 1) down.
-- The greatest score is 10 * 2^49 = 5.6e15 < 2^53, so a double holds every score exactly.
local function lane_score(priority, flags, sequence)
  local middle = (10 - priority) * BAND + BAND / 2 -- anchor: bands-are-2-49-wide
  if flags % 2 == 1 then return middle - sequence end -- anchor: lifo-jobs-go-in-front
  return middle + sequence
end

-- Rule 16: a member of `due` starts with the sequence as 10 base-32 digits, so equal due times keep the order of enqueue.
local function due_member(sequence, id)
  local alphabet, digits = '0123456789abcdefghijklmnopqrstuv', {}
  for place = 10, 1, -1 do
    local digit = sequence % 32
    digits[place] = string.sub(alphabet, digit + 1, digit + 1)
    sequence = (sequence - digit) / 32
  end
  return table.concat(digits) .. id
end

-- Make a job claimable: enter its lane among the ready ones, then the job in its lane. In this order because a claim drops a
-- ready lane that is empty, while a lane that is not ready would never be found. Returns the wake list to push; nil while the
-- lane is parked, which becomes ready when its limit has room. `turn` is the queue's virtual time (rule 18).
local function to_lane(prefix, id, job, turn)
  local score, wake = lane_score(job.priority, job.flags, job.sequence), nil
  if redis.call('HEXISTS', prefix .. 'parked', job.lane) == 0 then
    -- LT: a lane that is ready only moves ahead, for a job of a better band.
    -- anchor: urgent-job-moves-its-lane-ahead
    redis.call('ZADD', prefix .. 'ready:' .. job.class, 'LT', (10 - job.priority) * BAND + turn, job.lane)
    wake = prefix .. 'wake:' .. job.class
  end
  redis.call('ZADD', prefix .. 'lane:' .. job.lane, score, id)
  return wake
end

-- Move a parked lane to the ready ones, scored by the band of its first job and the queue's virtual time (rule 18); an empty lane
-- is only removed. Returns the wake list to push, or nil. The entry in `parked:<limit>` or `rest` is removed last: if the script
-- is cut off before, a later sweep finds the lane there again.
local function ready_lane(prefix, lane, turn)
  local waits = redis.call('HGET', prefix .. 'parked', lane)
  local head = redis.call('ZRANGE', prefix .. 'lane:' .. lane, 0, 0, 'WITHSCORES')
  local class, wake = string.match(lane, '^[^/]*'), nil
  if head[1] then
    redis.call('ZADD', prefix .. 'ready:' .. class, 'LT', math.floor(tonumber(head[2]) / BAND) * BAND + turn, lane)
    wake = prefix .. 'wake:' .. class
  end
  redis.call('HDEL', prefix .. 'parked', lane)
  if waits == 'rest' then redis.call('ZREM', prefix .. 'rest', 'l:' .. lane) end
  if waits and waits ~= 'rest' then redis.call('ZREM', prefix .. 'parked:' .. waits, lane) end
  return wake
end

-- Remove a lane without jobs from the ready and the parked ones, as a claim would do when it reaches the lane.
local function leave_empty(prefix, lane, turn)
  if redis.call('ZCARD', prefix .. 'lane:' .. lane) > 0 then return end
  ready_lane(prefix, lane, turn)
  redis.call('ZREM', prefix .. 'ready:' .. string.match(lane, '^[^/]*'), lane)
end

-- A part of the lanes that may hold jobs, some `bound` (500 unless told): the parked ones and the ready ones of each class. `cursor` is '' at first and
-- then what the call before returned, which returns '' at the end. What is there all the time is returned, and only once unless
-- one of these indexes grows or shrinks so much meanwhile that the server rebuilds it.
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
        for place = 1, #page[2], 2 do
          local lane = page[2][place]
          if not some_parked or redis.call('HEXISTS', parked, lane) == 0 then lanes[#lanes + 1] = lane end
        end
        inner, looked = page[1], looked + 1
      until inner == '0'
    end
    outer, class = classes[1], nil
  until outer == '0'
  return lanes, ''
end

-- The last writes of a claim on one lane: remove the claimed jobs; then the lane is ready for its next job, parked, or empty.
-- lane: name, class, zset, jobs, skipped, unread, blocked (the limit that it ran into), turn, ended (a linked list of skipped
-- jobs that have ended and whose `run` is left over from a cancel that was cut off), next_job (the entry that is its first one then, with its score; nil if that is not known).
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
    room, until_ms, ahead = limit_room(prefix, lane.blocked.limit, lane.blocked.definition, now_ms, lane.blocked.need)
    rate_back(prefix, lane.blocked.limit, ahead, now_ms)
  end
  if not head[1] then
    redis.call('ZREM', lane.class.ready, lane.name)
  elseif room <= 0 then
    local limit = lane.blocked.limit
    local waits = until_ms and 'rest' or limit
    -- Write where it waits, then the field in `parked`, and remove it from the ready ones last, so that it is always in some
    -- index.
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
    redis.call('ZADD', lane.class.ready, band * BAND + lane.turn, lane.name)
  end
end

-- Make the lanes of a key ready that wait for its limit, up to 100 of those that wait for a slot, because the limit has changed;
-- claims check the new one. Of more than 500 classes it is not known which have a lane of this key that rests: the next sweeps
-- bring back all lanes that rest (mend_limits). The wake lists to push are added to `wakes`.
local function lanes_back(prefix, key, turn, wakes)
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
    local wake = ready_lane(prefix, lane, turn)
    redis.call('ZREM', prefix .. 'parked:k:' .. key, lane)
    if wake then wakes[wake] = true end
  end
end
