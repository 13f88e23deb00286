-- Delayed jobs on Bull's wire: a score is the time in ms times 4096 and the low 12 bits of the id. Adds to `bull`, the methods of
-- the wire: due, next_due_ms, due_at, promote.
local function bull_due(bull, keys, root, now_ms)
  local function time_of(score)
    return math.floor(tonumber(score) / 4096)
  end

  -- No time is as far away as a score may say.
  local function told(score)
    return math.max(0, math.min(time_of(score), 140737488355328))
  end

  -- Members from the least score to `most`, as { id, time }.
  local function members(from, to, limit)
    local flat = redis.call('ZRANGEBYSCORE', keys.delayed, from, to, 'WITHSCORES', 'LIMIT', 0, limit)
    local found = {}
    for at = 1, #flat, 2 do found[#found + 1] = { id = flat[at], time = time_of(flat[at + 1]), number = tonumber(string.match(flat[at], '^%d+$')) } end
    return found
  end

  -- First in, first out among equal times: by the whole id, for its low 12 bits say after 4095 that 4096 came first. Ids that are
  -- no numbers keep the order of the set. A time with more than 4096 jobs is put in order 4096 at a time.
  function bull.due(most)
    local found = members('-inf', string.format('(%.0f', (now_ms + 1) * 4096), most)
    if #found == most then
      local time, whole = found[most].time, {}
      for _, member in ipairs(found) do
        if member.time < time then whole[#whole + 1] = member end
      end
      local first, last = string.format('%.0f', time * 4096), string.format('(%.0f', (time + 1) * 4096)
      if time < 0 then first, last = '-inf', '(0' end
      for _, member in ipairs(members(first, last, 4096)) do whole[#whole + 1] = member end
      found = whole
    end
    for at, member in ipairs(found) do member.at = at end
    table.sort(found, function(one, other)
      if one.time ~= other.time then return one.time < other.time end
      if one.number and other.number and one.number ~= other.number then return one.number < other.number end
      if (one.number == nil) ~= (other.number == nil) then return one.number == nil end
      return one.at < other.at
    end)
    local ids = {}
    for at = 1, math.min(most, #found) do ids[at] = found[at].id end
    return ids
  end

  function bull.next_due_ms()
    local score = redis.call('ZRANGE', keys.delayed, 0, 0, 'WITHSCORES')[2]
    return score and told(score) or nil
  end

  function bull.due_at(id)
    local score = redis.call('ZSCORE', keys.delayed, id)
    return score and told(score) or nil
  end

  -- `redo`: a copy that was cut off may have put it there.
  function bull.promote(id, redo)
    if not bull.is_hash(id) then
      redis.call('ZREM', keys.delayed, id)
      return false
    end
    if not (redo and bull.waits(id)) then bull.push(id, 'LPUSH') end
    redis.call('HSET', root .. id, 'delay', '0')
    redis.call('ZREM', keys.delayed, id)
    redis.call('LREM', keys.active, 0, id)
    -- Timers of the original sleep until the time that was told last.
    local score = redis.call('ZRANGE', keys.delayed, 0, 0, 'WITHSCORES')[2]
    if score and tonumber(score) / 4096 > now_ms then redis.call('PUBLISH', keys.delayed, string.format('%.17g', tonumber(score) / 4096)) end
    return true
  end
end
