-- Bananas: how jobs end, reads of jobs, and admin actions.
-- USES bananas/moves: home_of, waits_in, wire_read
--      bananas/wire: at_job, at_notify, at_result, go_quoted, go_time, known_routes, lists_of, rfc3339_ms,
--        with_members
--      foreign/format: page_of_lists

-- How runs end. A result is stored only for a job that has ended for good. The live programs store one after
-- each failed run, so their clients may receive a failure although a later run succeeds.

local function stamp(w)
  return '"' .. go_time(w.now_ms) .. '"'
end

-- Rewrite members of the job; nothing is written if it is gone or its key does not hold a job any more.
local function rewrite_job(w, id, job, changes, ttl_s)
  if job.kind ~= 'J' then return end
  local body = with_members(job.body, changes)
  if ttl_s then
    redis.call('SET', at_job(w, id), body, 'EX', ttl_s)
  else
    redis.call('SET', at_job(w, id), body)
  end
end

local function leave_processing(w, id)
  redis.call('LREM', w.processing, 0, id)
end

-- A new hash, so that no field of an earlier result stays.
local function write_result(w, id, ttl_s, fields)
  local key = at_result(w, id)
  redis.call('DEL', key)
  redis.call('HSET', key, 'completed_at', go_time(w.now_ms, true), unpack(fields))
  redis.call('EXPIRE', key, ttl_s)
end

local function wire_done(w, id, job, value, took_ms)
  local fields = { 'status', 'completed', 'duration_ms', string.format('%d', took_ms or 0) }
  if value and value ~= '' then fields[5], fields[6] = 'result', value end
  write_result(w, id, w.result_s, fields)
  rewrite_job(w, id, job, { status = '"completed"', updated_at = stamp(w) }, w.done_s)
  redis.call('ZADD', w.done, w.now_ms, id)
  redis.call('ZREMRANGEBYRANK', w.done, 0, -1001)
  leave_processing(w, id)
  redis.call('PUBLISH', at_notify(w, id), 'ready')
end

local function wire_again(w, id, job, failure)
  if job.kind ~= 'J' then return wire_set_aside(w, id, w.processing, job.why) end
  local later = failure.due_ms > w.now_ms
  local changes = { status = '"pending"', updated_at = stamp(w),
    attempts = string.format('%d', failure.failures),
    error = go_quoted(failure.error), scheduled_for = later and '"' .. go_time(failure.due_ms) .. '"'
    or false }
  rewrite_job(w, id, job, changes)
  if later then
    redis.call('ZADD', w.scheduled, math.ceil(failure.due_ms / 1000), id)
  else
    redis.call('LPUSH', home_of(w, id, job), id)
  end
  leave_processing(w, id)
end

local function wire_bury(w, id, job, failure)
  local changes = { status = '"failed"', updated_at = stamp(w),
    attempts = string.format('%d', failure.failures),
    error = go_quoted(failure.error), scheduled_for = false }
  write_result(w, id, w.error_s, { 'status', 'failed', 'duration_ms', '0', 'error', failure.error })
  -- A call that was cut off after this has buried it already.
  local there = (failure.redo or job.status == 'failed') and redis.call('LPOS', w.dead, id)
  if not there then redis.call('LPUSH', w.dead, id) end
  rewrite_job(w, id, job, changes, w.dead_s)
  leave_processing(w, id)
  redis.call('PUBLISH', at_notify(w, id), 'ready')
end

local function wire_drop(w, id)
  redis.call('DEL', at_job(w, id), at_result(w, id), w.prefix .. 'from:' .. id)
  leave_processing(w, id)
  redis.call('PUBLISH', at_notify(w, id), 'ready')
end

-- The live programs' schedulers give their jobs no id, so all of them share one key. Such a job gets an id
-- here, and stays in its place.
local function name_job(w, place)
  local job = wire_read(w, '')
  if not job or job.kind ~= 'J' or place == w.scheduled then return false end
  local id = string.format('cron:unnamed:%.0f-%d', w.now_ms, redis.call('INCR', w.prefix .. 'seq'))
  redis.call('SET', at_job(w, id), with_members(job.body, { id = go_quoted(id) }))
  redis.call('RPUSH', place, id)
  redis.call('LREM', place, -1, '')
  return true
end

-- Move it to the dead, with the record that the live programs write for such a job. A readable job stays
-- readable, and a key that is no string is not changed.
local function wire_set_aside(w, id, place, why)
  if id == '' and name_job(w, place) then return end
  local job, body = wire_read(w, id), redis.pcall('GET', at_job(w, id))
  local stub
  if job and job.kind == 'J' then
    stub = with_members(body, { status = '"failed"', error = go_quoted(why or '') })
  elseif not body then
    stub = '{"error":"Job data not found (corrupted reference)","id":' .. go_quoted(id) .. '}'
  elseif type(body) == 'string' then
    if #body > 500 then body = string.sub(body, 1, 500) .. '...' end
    stub = '{"corrupted_data":' .. go_quoted(body) .. ',"error":'
      .. go_quoted('Failed to unmarshal job: ' .. (why or ''))
      .. ',"id":' .. go_quoted(id) .. '}'
  end
  redis.call('LPUSH', w.dead, id)
  if stub then redis.call('SET', at_job(w, id), stub, 'EX', w.dead_s) end
  if place == w.scheduled then
    redis.call('ZREM', place, id)
  else
    redis.call('LREM', place or w.processing, -1, id)
  end
end

-- Reads of the queue for display, and admin actions.

-- All known waiting lists, or those of these routes, in the order of claims.
local function waiting_lists(w, routes)
  local lists = {}
  routes = routes or known_routes(w)
  for _, priority in ipairs(w.priorities) do
    for _, route in ipairs(routes) do
      for _, list in ipairs(lists_of(w, route, priority)) do lists[#lists + 1] = list end
    end
  end
  return lists
end

local function wire_list(w, state, offset, limit, newest_first, worker)
  local flat = {}
  if state == 'delayed' or state == 'done' then
    local key, unit = state == 'done' and w.done or w.scheduled, state == 'done' and 1 or 1000
    local words = redis.call(newest_first and 'ZREVRANGE' or 'ZRANGE', key, offset, offset + limit - 1,
      'WITHSCORES')
    for at = 1, #words, 2 do
      flat[at], flat[at + 1] = words[at], string.format('%.0f', tonumber(words[at + 1]) * unit)
    end
    return flat
  end
  local lists = state == 'waiting' and waiting_lists(w, worker and worker.routes)
    or state == 'active' and { w.processing } or state == 'dead' and { w.dead } or {}
  for _, id in ipairs(page_of_lists(lists, offset, limit, newest_first)) do
    local score = '0'
    if state == 'active' then score = redis.call('ZSCORE', w.prefix .. 'active', id) or '0' end
    if state == 'dead' then
      local job = wire_read(w, id)
      score = string.format('%.0f', job and job.updated_ms or 0)
    end
    flat[#flat + 1], flat[#flat + 2] = id, score
  end
  return flat
end

local function wire_count(w, state)
  if state == 'delayed' then return redis.call('ZCARD', w.scheduled) end
  if state == 'done' then return redis.call('ZCARD', w.done) end
  if state == 'active' then return redis.call('LLEN', w.processing) end
  if state == 'dead' then return redis.call('LLEN', w.dead) end
  local total = 0
  if state == 'waiting' then
    for _, list in ipairs(waiting_lists(w)) do total = total + redis.call('LLEN', list) end
  end
  return total
end

-- A stored failure of a job that will run again is not its end.
local function wire_ended(w, id)
  local job = wire_read(w, id)
  local flat = redis.pcall('HGETALL', at_result(w, id))
  local stored = {}
  for at = 1, flat.err and 0 or #flat, 2 do stored[flat[at]] = flat[at + 1] end
  local status = job and job.status or not job and stored.status or nil
  if job and job.kind == 'corrupt' and redis.call('LPOS', w.dead, id) then status = 'failed' end
  if status ~= 'completed' and status ~= 'failed' then return nil end
  local ended_ms = job and job.updated_ms or 0
  if ended_ms == 0 then ended_ms = rfc3339_ms(stored.completed_at) or 0 end
  local record = '{"ok":' .. tostring(status == 'completed') .. ',"ended_ms":'
    .. string.format('%d', ended_ms)
  if status == 'completed' then
    local value = stored.result
    -- A value that is no JSON is returned as a text.
    if value and not pcall(cjson.decode, '[' .. value .. ']') then value = go_quoted(value) end
    local took_ms = string.match(stored.duration_ms or '', '^%d+$') or '0'
    record = record .. ',"fence":0,"took_ms":' .. took_ms .. ',"value":' .. (value or 'null') .. '}'
    return { state = 'finished', ended_ms = ended_ms, error = '', record = record }
  end
  local why = job and job.kind == 'J' and job.error ~= '' and job.error or stored.error or job and job.why
    or ''
  return { state = 'dead', ended_ms = ended_ms, error = why,
    record = record .. ',"error":' .. go_quoted(why) .. '}' }
end

local function job_anew(w, job)
  return with_members(job.body, { status = '"pending"', updated_at = '"' .. go_time(w.now_ms) .. '"',
    scheduled_for = false, attempts = '0' })
end

-- `redo`: an earlier copy of the call was cut off, perhaps after it put the job into its list.
local function wire_requeue(w, id, job, redo)
  redis.call('DEL', at_result(w, id))
  redis.call('SET', at_job(w, id), job_anew(w, job))
  if not (redo and waits_in(w, id, job)) then redis.call('LPUSH', home_of(w, id, job), id) end
  redis.call('LREM', w.dead, 0, id)
end

local function wire_run_now(w, id, job, redo)
  local changes = { status = job.status == 'scheduled' and '"pending"' or nil, scheduled_for = false }
  redis.call('SET', at_job(w, id), with_members(job.body, changes))
  if not (redo and waits_in(w, id, job)) then redis.call('LPUSH', home_of(w, id, job), id) end
  redis.call('ZREM', w.scheduled, id)
end

local function wire_remove(w, id, state)
  local job = wire_read(w, id)
  if state == 'waiting' then
    local list = waits_in(w, id, job and job.kind == 'J' and job or nil)
    if list then redis.call('LREM', list, 0, id) end
  elseif state == 'delayed' then
    redis.call('ZREM', w.scheduled, id)
  elseif state == 'active' then
    redis.call('LREM', w.processing, 0, id)
  elseif state == 'dead' then
    redis.call('LREM', w.dead, 0, id)
  elseif state == 'done' then
    redis.call('ZREM', w.done, id)
  end
  redis.call('DEL', at_job(w, id), at_result(w, id), w.prefix .. 'from:' .. id)
end

-- Ended jobs are in no list, so the keys themselves are scanned, from where the last call has stopped.
local function wire_purge(w, most)
  local root, gone, looked = w.root, 0, 0
  local cursor = redis.call('GET', w.prefix .. 'purge') or '0'
  local kinds = { '^job:', '^result:', '^route:.*:queue:%a+$', '^queue:%a+$',
    w.documented and '^cron:state:' or '^schedules:', w.documented and '^cron:lock:' or '^schedule_lock:' }
  repeat
    local pass = redis.call('SCAN', cursor, 'MATCH', string.gsub(root, '[%*%?%[%]\\]', '\\%0') .. '*',
      'COUNT', 1000)
    cursor, looked = pass[1], looked + 1
    for _, key in ipairs(pass[2]) do
      local name = string.sub(key, #root + 1)
      for _, kind in ipairs(kinds) do
        if string.find(name, kind) then
          gone = gone + redis.call('DEL', key)
          break
        end
      end
    end
  until cursor == '0' or gone >= most or looked >= 100
  redis.call('SET', w.prefix .. 'purge', cursor, 'EX', 3600)
  return cursor ~= '0'
end

-- The engine's own keys that only this format uses.
local function wire_obliterated(w)
  for _, name in ipairs({ 'routes', 'adopting', 'purge', 'seq', 'done' }) do
    redis.call('DEL', w.prefix .. name)
  end
end

