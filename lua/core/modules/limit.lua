-- Limits of concurrency and of rates: how much room is left, how limit slots and units are freed, and how
-- sweeps repair the counts.
-- USES core/call: fields_of
--      core/lane: ready_lane

-- How many more leases a limit allows now (rule 20). Returns 5 values: the room; if the rate is used up, the
-- time (ms) at which `need` units (default 1) come free, else nil; the entries of the window that lie ahead
-- of now because the clock stepped back (rule 10); the units that are left; and the rate.
-- definition: concurrency rate per_ms fixed|sliding, 0 where there is none.
local function limit_room(prefix, limit, definition, now_ms, need)
  local slots, rate, per_ms, kind = string.match(definition, '^(%d+) (%d+) (%d+) (%a+)$')
  -- A definition that cannot be read lets nothing through, and blocks no other name.
  if not slots then return 0, nil, nil, 0 end
  slots, rate, per_ms = tonumber(slots), tonumber(rate), tonumber(per_ms)
  local held = slots > 0 and redis.pcall('ZCARD', prefix .. 'held:' .. limit)
  -- The same for a limit whose counts are in keys of another type.
  if type(held) == 'table' then return 0, nil, nil, 0 end
  local room = held and slots - held or math.huge
  if rate == 0 then return room, nil, nil, math.huge end
  need = math.min(need or 1, rate)
  local key = prefix .. 'rate:' .. limit
  -- anchor: fixed-window-begins-at-its-start
  local start_ms = kind == 'fixed' and now_ms - now_ms % per_ms or now_ms - per_ms + 1
  local used = redis.pcall('ZCOUNT', key, start_ms, '+inf')
  if type(used) == 'table' then return 0, nil, nil, 0 end
  local until_ms = start_ms + per_ms
  local over = used + need > rate
  if over and kind == 'sliding' then
    local oldest = redis.call('ZRANGE', key, start_ms, '+inf', 'BYSCORE', 'LIMIT', used + need - rate - 1, 1,
      'WITHSCORES')
    until_ms = math.min(tonumber(oldest[2]), now_ms) + per_ms
  end
  local ahead = redis.call('ZRANGE', key, '(' .. string.format('%d', now_ms), '+inf', 'BYSCORE', 'LIMIT', 0,
    100000)
  return over and 0 or math.min(room, rate - used), over and until_ms or nil, ahead, rate - used, rate
end

-- Set entries of a rate's window that lie ahead of now, because the clock stepped back, to now, once
-- (rule 10). If each read only counted them as now, they would move along with the clock and never leave the
-- window.
local function rate_back(prefix, limit, ahead, now_ms)
  for at = 1, #(ahead or {}), PIECE / 2 do
    local words = {}
    for entry = at, math.min(at + PIECE / 2 - 1, #ahead) do
      words[#words + 1], words[#words + 2] = now_ms, ahead[entry]
    end
    redis.call('ZADD', prefix .. 'rate:' .. limit, 'XX', unpack(words))
  end
end

-- Whether the slots of a limit can be written: a key of another type has none, and blocks no lease. Checked
-- beforehand, because a test cannot cut off a write that may fail.
local function has_slots(held)
  return type(redis.pcall('ZCARD', held)) == 'number'
end

-- Free the limit slots of an ended lease (rule 20). A freed slot of a key brings back all parked lanes of
-- that key, at most one per class. A claim then decides which of them uses it. A freed slot of a name may be
-- used by every class with that name. `words` is the field `limits` of the run; the wake lists to push are
-- added to `wakes`.
local function free_slots(prefix, words, id, virtual_time, wakes)
  for limit in string.gmatch(words or '', '%S+') do
    local held = prefix .. 'held:' .. limit
    if has_slots(held) then redis.call('ZREM', held, id) end
    local name = string.sub(limit, 3)
    if string.sub(limit, 1, 2) == 'n:' then
      for class in string.gmatch(name .. (redis.call('HGET', prefix .. 'routed', name) or ''), '%S+') do
        -- anchor: freed-slot-leaves-a-marker
        if redis.call('ZCARD', prefix .. 'ready:' .. class) > 0 then wakes[prefix .. 'wake:' .. class] = true end
      end
    else
      -- anchor: freed-slot-calls-parked-lanes
      for _, lane in ipairs(redis.call('ZRANGE', prefix .. 'parked:' .. limit, 0, 99)) do
        local wake = ready_lane(prefix, lane, virtual_time)
        redis.call('ZREM', prefix .. 'parked:' .. limit, lane)
        if wake then wakes[wake] = true end
      end
    end
  end
end

-- Count new leases against a limit: their limit slots, and their units in the window of its rate (rule 20). A
-- unit is named <id>:<fence>, further ones of a job that costs more <id>:<fence>:2 and so on. leases: ids,
-- fences, costs; limit: limit, definition, ahead.
local function count_leases(prefix, limit, leases, deadline_ms, now_ms)
  local slots, rate, per_ms = string.match(limit.definition, '^(%d+) (%d+) (%d+)')
  local held, used = {}, {}
  for at, id in ipairs(leases.ids) do
    held[2 * at - 1], held[2 * at] = deadline_ms, id
    local unit_name = id .. ':' .. leases.fences[at]
    for unit = 1, math.min(leases.costs[at], tonumber(rate)) do -- anchor: rate-is-charged-the-cost-of-the-job
      used[#used + 1], used[#used + 2] = now_ms, unit == 1 and unit_name
        or string.format('%s:%d', unit_name, unit)
    end
  end
  if slots ~= '0' then -- anchor: lease-holds-a-slot
    -- anchor: every-lease-holds-a-slot
    for at = 1, #held, PIECE do redis.call('ZADD', prefix .. 'held:' .. limit.limit, unpack(held, at, math.min(at + PIECE - 1, #held))) end
  end
  if rate ~= '0' then -- anchor: claims-count-in-the-rate
    local key = prefix .. 'rate:' .. limit.limit
    rate_back(prefix, limit.limit, limit.ahead, now_ms)
    -- anchor: every-claim-counts-in-the-rate
    for at = 1, #used, PIECE do redis.call('ZADD', key, unpack(used, at, math.min(at + PIECE - 1, #used))) end
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms - tonumber(per_ms))
    redis.call('PEXPIREAT', key, now_ms + tonumber(per_ms))
  end
end

-- End the rests from the time `from` (ms) on, up to 250: those that lie ahead because the clock stepped
-- back, and those that a changed limit may end. Returns whether some are left.
local function end_rests(prefix, sweep, from, now_ms, virtual_time, wakes)
  local rest, blocking = prefix .. 'rest', prefix .. 'blocking'
  -- Limits with parked lanes are checked in the order of their last check, so one whose time lies ahead of
  -- now would always come last.
  local ahead = redis.call('ZRANGE', blocking, '(' .. string.format('%d', now_ms), '+inf', 'BYSCORE',
    'LIMIT', 0, 1000)
  for _, limit in ipairs(ahead) do redis.call('ZADD', blocking, 'XX', 0, limit) end
  local page = redis.call('ZRANGE', rest, from, '+inf', 'BYSCORE', 'LIMIT', 0, 250, 'WITHSCORES')
  for at = 1, #page, 2 do
    if string.sub(page[at], 1, 2) == 'l:' then
      local wake = ready_lane(prefix, string.sub(page[at], 3), virtual_time)
      redis.call('ZREM', rest, page[at])
      if wake then wakes[wake] = true end
    else
      redis.call('ZADD', rest, 'XX', now_ms, page[at])
    end
  end
  local from_ms = #page == 500 and page[500] or #ahead == 1000 and from
  if from_ms then
    redis.call('HSET', sweep, 'rests_from_ms', from_ms)
  else
    redis.call('HDEL', sweep, 'rests_from_ms')
  end
  return from_ms ~= false
end

-- Shorten pauses that end too far ahead, because the clock stepped back, to their own length; drop those that
-- are over.
local function mend_pauses(prefix, now_ms)
  local pauses = redis.call('HGETALL', prefix .. 'paused')
  for at = 1, #pauses, 2 do
    -- A value that cannot be read is no pause, and stops no sweep.
    local until_ms, length_ms = string.match(pauses[at + 1], '^(%d+) (%d+)$')
    until_ms, length_ms = until_ms or '0', length_ms or '0'
    if tonumber(until_ms) > now_ms + tonumber(length_ms) then
      redis.call('HSET', prefix .. 'paused', pauses[at],
        string.format('%d %s', now_ms + length_ms, length_ms))
      until_ms = now_ms + length_ms
    elseif tonumber(until_ms) > 0 and tonumber(until_ms) <= now_ms then
      redis.call('HDEL', prefix .. 'paused', pauses[at])
    end
    -- The wake marker is due when the pause ends, also where its rest was ended above.
    if tonumber(until_ms) > now_ms then
      redis.call('ZADD', prefix .. 'rest', 'GT', until_ms, 'w:' .. pauses[at])
    end
  end
end

-- Drop the limit slots whose leases have ended.
local function drop_slots(prefix, limit, now_ms)
  local held = prefix .. 'held:' .. limit
  for _, id in ipairs(redis.pcall('ZRANGE', held, '-inf', '(' .. string.format('%d', now_ms), 'BYSCORE',
      'LIMIT', 0, 100)) do
    -- anchor: slots-without-a-lease-are-swept
    if not redis.call('ZSCORE', prefix .. 'active', id) then redis.call('ZREM', held, id) end
  end
end

-- Bring up to `most` parked lanes of a limit back if it has room. Returns how many there were.
local function unpark_lanes(prefix, limit, most, now_ms, virtual_time, wakes)
  local blocking, parked, count = prefix .. 'blocking', prefix .. 'parked:' .. limit, 0
  local definition = redis.call('HGET', prefix .. 'limits', limit)
    or redis.call('HGET', prefix .. 'limits', 'k:*')
  if not definition or limit_room(prefix, limit, definition, now_ms) > 0 then
    for _, lane in ipairs(redis.call('ZRANGE', parked, 0, math.min(99, most - 1))) do
      count = count + 1
      local wake = ready_lane(prefix, lane, virtual_time)
      redis.call('ZREM', parked, lane)
      if wake then wakes[wake] = true end
    end
  end
  if redis.call('ZCARD', parked) > 0 then
    redis.call('ZADD', blocking, now_ms, limit)
  else
    redis.call('ZREM', blocking, limit)
  end
  return count
end

-- Repair limits (rule 20): compare their counts with the leases, and bring lanes back that no longer need to
-- wait. A call checks a page of the limits of names, and the 100 limits with parked lanes whose last check is
-- longest ago, up to 250 lanes. Every end of a lease frees its limit slots; this repairs leftovers of scripts
-- that were cut off and of changed limits. A pause that ends too far ahead because the clock stepped back is
-- shortened to its own length. Rests that lie ahead for that reason, or that a changed limit may end, end
-- now, up to 250 per call. The next claim writes them again if they still apply (rule 10). Returns whether
-- some are left to be checked.
local function mend_limits(prefix, sweep, now_ms, virtual_time, wakes)
  local blocking, state = prefix .. 'blocking',
    fields_of(sweep, { 'rests_from_ms', 'limits_changed_ms', 'limits_from' })
  local more, changed_ms = false, tonumber(state.limits_changed_ms or 0)
  -- If the clock stepped back, a change that lies ahead of now counts as made now (rule 10). Otherwise each
  -- sweep would ask for another one at once until the clock has caught up.
  if changed_ms > now_ms + 1 then
    changed_ms = now_ms + 1
    redis.call('HSET', sweep, 'limits_changed_ms', changed_ms) -- anchor: limit-change-follows-the-clock
  end
  if state.rests_from_ms then
    more = end_rests(prefix, sweep, state.rests_from_ms, now_ms, virtual_time, wakes)
  end
  mend_pauses(prefix, now_ms)
  local limits = redis.call('ZRANGE', blocking, 0, 99)
  local parking, most = #limits, 250
  local defined = redis.call('HSCAN', prefix .. 'limits', state.limits_from or '0', 'COUNT', 100)
  for at = 1, #defined[2], 2 do
    if string.sub(defined[2][at], 1, 2) == 'n:' then limits[#limits + 1] = defined[2][at] end
  end
  if defined[1] ~= '0' then
    redis.call('HSET', sweep, 'limits_from', defined[1])
  elseif state.limits_from then
    redis.call('HDEL', sweep, 'limits_from')
  end
  for at, limit in ipairs(limits) do
    drop_slots(prefix, limit, now_ms)
    if at <= parking and most > 0 then
      most = most - unpark_lanes(prefix, limit, most, now_ms, virtual_time, wakes)
    end
  end
  local oldest = redis.call('ZRANGE', blocking, 0, 0, 'WITHSCORES')
  return more or oldest[2] ~= nil and tonumber(oldest[2]) < changed_ms
end
