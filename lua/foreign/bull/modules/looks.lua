-- Bull: reads of jobs, and admin actions.

-- Reads of Bull's wire (its own keys), and admin actions on it. Adds to `bull`, the methods of the wire:
-- strays, list, count, ended, requeue, run_now, remove, purge, pause, resume, paused.
local function bull_looks(bull, keys, root, prefix, now_ms)
  -- By the original's rule a job in `active` without a lock is stalled. `ours(id)` is true for a job that the
  -- engine leases.
  function bull.strays(most, ours)
    local found = {}
    for _, id in ipairs(redis.call('LRANGE', keys.active, -1000, -1)) do
      if #found < most and not (ours and ours(id)) and redis.call('EXISTS', root .. id .. ':lock') == 0 then
        found[#found + 1] = id
      end
    end
    return found
  end

  -- A page of several lists, one after the other, each read from its right or from its left end.
  local function part_of(lists, offset, limit, from_left)
    local ids = {}
    for _, list in ipairs(lists) do
      local length = redis.call('LLEN', list)
      local left = limit - #ids
      if left > 0 and offset < length then
        local found = from_left and redis.call('LRANGE', list, offset, offset + left - 1)
          or redis.call('LRANGE', list, -offset - left, -offset - 1)
        for at = 1, #found do ids[#ids + 1] = found[from_left and at or #found + 1 - at] end
      end
      offset = math.max(0, offset - length)
    end
    return ids
  end

  -- Sets have no order: small ones are sorted by the time at which their jobs were made, large ones keep the
  -- server's order.
  local function of_set(set, offset, limit, newest_first)
    -- SORT takes the first `*` of its pattern for the id, so a name of a queue that has one cannot be in it.
    if redis.call('SCARD', set) <= 10000 and not string.find(root, '*', 1, true) then
      local ids = redis.pcall('SORT_RO', set, 'BY', root .. '*->timestamp', 'LIMIT', offset, limit,
        newest_first and 'DESC' or 'ASC')
      if not ids.err then return ids end
    end
    local ids, cursor, passed = {}, '0', 0
    repeat
      local reply = redis.call('SSCAN', set, cursor, 'COUNT', 1000)
      cursor = reply[1]
      for _, id in ipairs(reply[2]) do
        passed = passed + 1
        if passed > offset and #ids < limit then ids[#ids + 1] = id end
      end
    until cursor == '0' or #ids == limit
    return ids
  end

  local function made_ms(id)
    local text = not bull.reserved(id) and redis.pcall('HGET', root .. id, 'timestamp')
    return type(text) == 'string' and string.match(text, '^%d+$') or '0'
  end

  local function held_until_ms(id)
    local left_ms = redis.call('PTTL', root .. id .. ':lock')
    return redis.call('ZSCORE', prefix .. 'active', id)
      or string.format('%.0f', left_ms > 0 and now_ms + left_ms or 0)
  end

  function bull.list(state, offset, limit, newest_first)
    local flat = {}
    if state == 'delayed' then
      local found = redis.call(newest_first and 'ZREVRANGE' or 'ZRANGE', keys.delayed, offset,
        offset + limit - 1, 'WITHSCORES')
      for at = 1, #found, 2 do
        local time = math.max(0, math.min(math.floor(tonumber(found[at + 1]) / 4096), 140737488355328))
        flat[at], flat[at + 1] = found[at], string.format('%.0f', time)
      end
      return flat
    end
    local ids, score_of = {}, made_ms
    if state == 'waiting' then
      ids = part_of(newest_first and { keys.paused, keys.wait } or { keys.wait, keys.paused }, offset, limit,
        newest_first)
    elseif state == 'active' then
      ids, score_of = part_of({ keys.active }, offset, limit, newest_first), held_until_ms
    elseif state == 'done' or state == 'dead' then
      ids = of_set(state == 'done' and keys.completed or keys.failed, offset, limit, newest_first)
    end
    for at, id in ipairs(ids) do flat[2 * at - 1], flat[2 * at] = id, score_of(id) end
    return flat
  end

  function bull.count(state)
    if state == 'waiting' then return redis.call('LLEN', keys.wait) + redis.call('LLEN', keys.paused) end
    if state == 'delayed' then return redis.call('ZCARD', keys.delayed) end
    if state == 'active' then return redis.call('LLEN', keys.active) end
    if state == 'done' then return redis.call('SCARD', keys.completed) end
    if state == 'dead' then return redis.call('SCARD', keys.failed) end
    return 0
  end

  -- The wire does not record when a job ended, so ended_ms is 0.
  function bull.ended(id)
    local place = bull.place(id)
    if place ~= 'done' and place ~= 'dead' then return nil end
    local found = redis.pcall('HMGET', root .. id, 'returnvalue', 'stacktrace')
    if place == 'done' then
      local value = not found.err and found[1] or 'null'
      if not pcall(cjson.decode, value) then value = 'null' end
      return { state = 'finished', ended_ms = 0,
        record = '{"ok":true,"ended_ms":0,"fence":0,"took_ms":0,"value":' .. value .. '}' }
    end
    local fine, traces = pcall(cjson.decode, not found.err and found[2] or '[]')
    local last = fine and type(traces) == 'table' and traces[#traces]
    local text = type(last) == 'string' and string.match(last, '^[^\n]*') or ''
    return { state = 'dead', ended_ms = 0, error = text,
      record = '{"ok":false,"ended_ms":0,"error":' .. cjson.encode(text) .. '}' }
  end

  function bull.requeue(id, job)
    if not bull.waits(id) then bull.push(id, job.lifo and 'RPUSH' or 'LPUSH') end
    redis.call('SREM', keys.failed, id)
  end

  -- `redo`: an earlier copy of the call was cut off, perhaps after it put the job into its list.
  function bull.run_now(id, job, redo)
    if redo and bull.waits(id) then
      redis.call('ZREM', keys.delayed, id)
      return true
    end
    return bull.promote(id)
  end

  -- The hash first: whatever finds the id afterwards sees that there is no job.
  function bull.remove(id, state)
    if not bull.reserved(id) then redis.call('DEL', root .. id, root .. id .. ':lock') end
    if state == 'waiting' then
      redis.call('LREM', keys.wait, 0, id)
      redis.call('LREM', keys.paused, 0, id)
    elseif state == 'delayed' then
      redis.call('ZREM', keys.delayed, id)
    elseif state == 'active' then
      redis.call('LREM', keys.active, 0, id)
    elseif state == 'done' then
      redis.call('SREM', keys.completed, id)
    elseif state == 'dead' then
      redis.call('SREM', keys.failed, id)
    end
  end

  -- Hashes that are in no structure, because a resume of the original lost them, are deleted by number: the
  -- counter is counted down.
  function bull.purge(most)
    local ids = {}
    for _, list in ipairs({ keys.wait, keys.paused, keys.active }) do
      for _, id in ipairs(redis.call('LPOP', list, most) or {}) do ids[#ids + 1] = id end
    end
    for _, id in ipairs(redis.call('ZRANGE', keys.delayed, 0, most - 1)) do ids[#ids + 1] = id end
    redis.call('ZREMRANGEBYRANK', keys.delayed, 0, most - 1)
    for _, set in ipairs({ keys.completed, keys.failed }) do
      for _, id in ipairs(redis.call('SPOP', set, most)) do ids[#ids + 1] = id end
    end
    local last = tonumber(string.match(redis.call('GET', keys.id) or '', '^%d+$')) or 0
    if last > EXACT_MAX then last = 0 end
    for number = math.max(1, last - most + 1), last do ids[#ids + 1] = string.format('%.0f', number) end
    for _, id in ipairs(ids) do
      if not bull.reserved(id) then redis.call('DEL', root .. id, root .. id .. ':lock') end
    end
    if #ids == 0 then
      redis.call('DEL', keys.id, keys.meta)
      return false
    end
    redis.call('SET', keys.id, string.format('%.0f', math.max(0, last - most)))
    return true
  end

  -- Both lists may hold jobs if the original has promoted some while the queue was paused: its own resume and
  -- pause overwrite one of them. Jobs that were paused run first; the shorter list is moved into the longer
  -- one.
  local function merge(into)
    local whole, part, from, to = keys.paused, keys.wait, 'RIGHT', 'LEFT'
    if redis.call('LLEN', keys.wait) > redis.call('LLEN', keys.paused) then
      whole, part, from, to = part, whole, to, from
    end
    while redis.call('LMOVE', part, whole, from, to) do end
    if whole ~= into and redis.call('EXISTS', whole) == 1 then redis.call('RENAME', whole, into) end
  end

  function bull.pause(name)
    if name ~= '*' then return end
    redis.call('SET', keys.meta, '1')
    merge(keys.paused)
    redis.call('PUBLISH', keys.paused, 'paused')
  end

  function bull.resume(name)
    if name ~= '*' then return end
    merge(keys.wait)
    redis.call('DEL', keys.meta)
    redis.call('PUBLISH', keys.paused, 'resumed')
  end

  function bull.paused(name)
    return name == '*' and redis.call('EXISTS', keys.meta) == 1
  end
end
