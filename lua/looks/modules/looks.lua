-- Looks at what holds jobs back: pauses, limits with who fills them, and how long the jobs of a lane have
-- waited. They only read.
-- USES core/envelope: look_at
--      core/limit: limit_room
--      core/run: run_look

-- The pauses of the queue (*) and of these names that are on now: name and until_ms (0 = until it is resumed)
-- in turn. `fields` are fields and values of the hash of pauses in turn.
local function pauses_on(fields, now_ms)
  local on = {}
  for at = 1, #fields, 2 do
    local until_ms = tonumber(string.match(fields[at + 1] or '', '^%d+'))
    if until_ms and (until_ms == 0 or until_ms > now_ms) then
      on[#on + 1], on[#on + 2] = fields[at], until_ms
    end
  end
  return on
end

-- How far a limit is used up. Returns the limit and its definition; how many leases count against it; how
-- many units of the window are used; the time (ms) at which `need` units come free, 0 if they are free; and
-- how many lanes wait for a limit slot. Then the job and its worker of up to `most` of those leases, and 1 if
-- the definition is the one for all keys without their own.
local function limit_use(prefix, limit, definition, now_ms, need, most, inherited)
  local _, until_ms, _, left, rate = limit_room(prefix, limit, definition, now_ms, need)
  local held, holders = prefix .. 'held:' .. limit, {}
  for _, id in ipairs(most > 0 and redis.pcall('ZRANGE', held, 0, most - 1) or {}) do
    holders[#holders + 1], holders[#holders + 2] = id, run_look(prefix .. 'run:' .. id, 'owner')[1] or ''
  end
  local parked = redis.call('ZCARD', prefix .. 'parked:' .. limit)
  local size = redis.pcall('ZCARD', held)
  return { limit, definition, type(size) == 'number' and size or 0, rate and rate - left or 0, until_ms or 0,
    parked, holders, inherited and 1 or 0 }
end

-- Since when (ms) a job is claimable, from the beginning of its envelope: the time of its enqueue, or the end
-- of its delay. Nil for bytes that are no envelope.
local function waits_since(raw)
  local first, flags = string.byte(raw, 1, 2)
  if not flags or first < 161 or first > 186 or first > 170 and first < 177 then return nil end
  raw = raw .. string.rep('\0', 32)
  local at, due_ms = 2, 0
  local high, low, enqueued_ms
  if first > 176 then at = 3 else flags = 0 end
  if flags >= 128 then
    enqueued_ms = struct.unpack('>I6', raw, at + 6)
    at = at + 18
  else
    high, low, at = struct.unpack('>I4I5', raw, at)
    enqueued_ms = high % 4 * 1099511627776 + low
  end
  if math.floor(flags / 2) % 2 == 1 then due_ms = struct.unpack('>I6', raw, at) end
  return math.max(enqueued_ms, due_ms)
end

-- Since when (ms) the oldest waiting job of a lane with `size` jobs waits; 0 for an empty lane. Jobs of each
-- priority stand in the order of their enqueue, and LIFO jobs before them in the opposite order. The `most`
-- oldest jobs of each such row are read.
local function lane_since(prefix, lane, size, most)
  local key, half, from, oldest = prefix .. 'lane:' .. lane, BAND / 2, '-inf', nil
  local function look(ids)
    for _, id in ipairs(ids) do
      local since_ms = waits_since(look_at(prefix .. 'job:' .. id, 31))
      if since_ms then oldest = math.min(oldest or since_ms, since_ms) end
    end
  end
  for _ = 1, 20 do
    local head = redis.call('ZRANGE', key, from, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    if not head[1] then break end
    local row = math.floor(tonumber(head[2]) / half)
    local first, last = string.format('%d', row * half), string.format('(%d', (row + 1) * half)
    if row % 2 == 0 then
      look(redis.call('ZRANGE', key, last, first, 'BYSCORE', 'REV', 'LIMIT', 0, most))
    else
      look(redis.call('ZRANGE', key, first, last, 'BYSCORE', 'LIMIT', 0, most))
    end
    if size == 1 then break end
    from = string.sub(last, 2)
  end
  return oldest or 0
end
