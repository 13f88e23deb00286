-- Bull: reads of jobs, and admin actions.
-- USES bull/wire: bounded_time, is_waiting, push_waiting, reserved_id, wire_place, wire_promote
--      foreign/format: page_of_lists

-- By the original's rule a job in `active` without a lock is stalled. `ours(id)` is true for a job that the
-- engine leases.
local function wire_strays(w, most, ours)
  local found = {}
  for _, id in ipairs(redis.call('LRANGE', w.keys.active, -1000, -1)) do
    if #found < most and not (ours and ours(id)) and redis.call('EXISTS', w.root .. id .. ':lock') == 0 then
      found[#found + 1] = id
    end
  end
  return found
end

-- Sets have no order: small ones are sorted by the time at which their jobs were made, large ones keep the
-- server's order.
local function page_of_set(w, set, offset, limit, newest_first)
  -- SORT takes the first `*` of its pattern for the id, so a name of a queue that has one cannot be in it.
  if redis.call('SCARD', set) <= 10000 and not string.find(w.root, '*', 1, true) then
    local ids = redis.pcall('SORT_RO', set, 'BY', w.root .. '*->timestamp', 'LIMIT', offset, limit,
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

local function made_ms(w, id)
  local text = not reserved_id(w, id) and redis.pcall('HGET', w.root .. id, 'timestamp')
  return type(text) == 'string' and string.match(text, '^%d+$') or '0'
end

local function held_until_ms(w, id)
  local left_ms = redis.call('PTTL', w.root .. id .. ':lock')
  return redis.call('ZSCORE', w.prefix .. 'active', id)
    or string.format('%.0f', left_ms > 0 and w.now_ms + left_ms or 0)
end

local function wire_list(w, state, offset, limit, newest_first)
  local flat = {}
  if state == 'delayed' then
    local found = redis.call(newest_first and 'ZREVRANGE' or 'ZRANGE', w.keys.delayed, offset,
      offset + limit - 1, 'WITHSCORES')
    for at = 1, #found, 2 do
      flat[at], flat[at + 1] = found[at], string.format('%.0f', bounded_time(found[at + 1]))
    end
    return flat
  end
  local ids, score_of = {}, made_ms
  if state == 'waiting' then
    ids = page_of_lists({ w.keys.wait, w.keys.paused }, offset, limit, newest_first)
  elseif state == 'active' then
    ids, score_of = page_of_lists({ w.keys.active }, offset, limit, newest_first), held_until_ms
  elseif state == 'done' or state == 'dead' then
    ids = page_of_set(w, state == 'done' and w.keys.completed or w.keys.failed, offset, limit, newest_first)
  end
  for at, id in ipairs(ids) do flat[2 * at - 1], flat[2 * at] = id, score_of(w, id) end
  return flat
end

local function wire_count(w, state)
  if state == 'waiting' then return redis.call('LLEN', w.keys.wait) + redis.call('LLEN', w.keys.paused) end
  if state == 'delayed' then return redis.call('ZCARD', w.keys.delayed) end
  if state == 'active' then return redis.call('LLEN', w.keys.active) end
  if state == 'done' then return redis.call('SCARD', w.keys.completed) end
  if state == 'dead' then return redis.call('SCARD', w.keys.failed) end
  return 0
end

-- The wire does not record when a job ended, so ended_ms is 0.
local function wire_ended(w, id)
  local place = wire_place(w, id)
  if place ~= 'done' and place ~= 'dead' then return nil end
  local found = redis.pcall('HMGET', w.root .. id, 'returnvalue', 'stacktrace')
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

local function wire_requeue(w, id, job)
  if not is_waiting(w, id) then push_waiting(w, id, job.lifo and 'RPUSH' or 'LPUSH') end
  redis.call('SREM', w.keys.failed, id)
end

-- `redo`: an earlier copy of the call was cut off, perhaps after it put the job into its list.
local function wire_run_now(w, id, job, redo)
  if redo and is_waiting(w, id) then
    redis.call('ZREM', w.keys.delayed, id)
    return true
  end
  return wire_promote(w, id)
end

-- The hash first: whatever finds the id afterwards sees that there is no job.
local function wire_remove(w, id, state)
  if not reserved_id(w, id) then redis.call('DEL', w.root .. id, w.root .. id .. ':lock') end
  if state == 'waiting' then
    redis.call('LREM', w.keys.wait, 0, id)
    redis.call('LREM', w.keys.paused, 0, id)
  elseif state == 'delayed' then
    redis.call('ZREM', w.keys.delayed, id)
  elseif state == 'active' then
    redis.call('LREM', w.keys.active, 0, id)
  elseif state == 'done' then
    redis.call('SREM', w.keys.completed, id)
  elseif state == 'dead' then
    redis.call('SREM', w.keys.failed, id)
  end
end

-- Hashes that are in no structure, because a resume of the original lost them, are deleted by number: the
-- counter is counted down.
local function wire_purge(w, most)
  local ids = {}
  for _, list in ipairs({ w.keys.wait, w.keys.paused, w.keys.active }) do
    for _, id in ipairs(redis.call('LPOP', list, most) or {}) do ids[#ids + 1] = id end
  end
  for _, id in ipairs(redis.call('ZRANGE', w.keys.delayed, 0, most - 1)) do ids[#ids + 1] = id end
  redis.call('ZREMRANGEBYRANK', w.keys.delayed, 0, most - 1)
  for _, set in ipairs({ w.keys.completed, w.keys.failed }) do
    for _, id in ipairs(redis.call('SPOP', set, most)) do ids[#ids + 1] = id end
  end
  local last = tonumber(string.match(redis.call('GET', w.keys.id) or '', '^%d+$')) or 0
  if last > EXACT_MAX then last = 0 end
  for number = math.max(1, last - most + 1), last do ids[#ids + 1] = string.format('%.0f', number) end
  for _, id in ipairs(ids) do
    if not reserved_id(w, id) then redis.call('DEL', w.root .. id, w.root .. id .. ':lock') end
  end
  if #ids == 0 then
    redis.call('DEL', w.keys.id, w.keys.meta)
    return false
  end
  redis.call('SET', w.keys.id, string.format('%.0f', math.max(0, last - most)))
  return true
end

-- Both lists may hold jobs if the original has promoted some while the queue was paused: its own resume and
-- pause overwrite one of them. Jobs that were paused run first; the shorter list is moved into the longer
-- one.
local function merge_lists(w, into)
  local whole, part, from, to = w.keys.paused, w.keys.wait, 'RIGHT', 'LEFT'
  if redis.call('LLEN', w.keys.wait) > redis.call('LLEN', w.keys.paused) then
    whole, part, from, to = part, whole, to, from
  end
  while redis.call('LMOVE', part, whole, from, to) do end
  if whole ~= into and redis.call('EXISTS', whole) == 1 then redis.call('RENAME', whole, into) end
end

local function wire_pause(w, name)
  if name ~= '*' then return end
  redis.call('SET', w.keys.meta, '1')
  merge_lists(w, w.keys.paused)
  redis.call('PUBLISH', w.keys.paused, 'paused')
end

local function wire_resume(w, name)
  if name ~= '*' then return end
  merge_lists(w, w.keys.wait)
  redis.call('DEL', w.keys.meta)
  redis.call('PUBLISH', w.keys.paused, 'resumed')
end

local function wire_paused(w, name)
  return name == '*' and redis.call('EXISTS', w.keys.meta) == 1
end
