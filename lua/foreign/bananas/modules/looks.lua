-- Bananas: how jobs end, reads of jobs, and admin actions.
-- USES bananas/wire: rfc3339_ms

-- How runs end. A result is stored only for a job that has ended for good. The live programs store one after
-- each failed run, so their clients may receive a failure although a later run succeeds.
local function wire_ends(w, shared)
  local keys, text = shared.keys, shared.text

  local function stamp() return '"' .. shared.time(shared.now_ms) .. '"' end

  -- Rewrite members of the job; nothing is written if it is gone or its key does not hold a job any more.
  local function rewrite(id, job, changes, ttl_s)
    if job.kind ~= 'J' then return end
    local body = text.with(job.body, changes)
    if ttl_s then
      redis.call('SET', keys.job(id), body, 'EX', ttl_s)
    else
      redis.call('SET', keys.job(id), body)
    end
  end

  local function leave(id) redis.call('LREM', keys.processing, 0, id) end

  -- A new hash, so that no field of an earlier result stays.
  local function result(id, ttl_s, fields)
    local key = keys.result(id)
    redis.call('DEL', key)
    redis.call('HSET', key, 'completed_at', shared.time(shared.now_ms, true), unpack(fields))
    redis.call('EXPIRE', key, ttl_s)
  end

  function w.done(id, job, value, took_ms)
    local fields = { 'status', 'completed', 'duration_ms', string.format('%d', took_ms or 0) }
    if value and value ~= '' then fields[5], fields[6] = 'result', value end
    result(id, shared.result_s, fields)
    rewrite(id, job, { status = '"completed"', updated_at = stamp() }, shared.done_s)
    redis.call('ZADD', shared.done, shared.now_ms, id)
    redis.call('ZREMRANGEBYRANK', shared.done, 0, -1001)
    leave(id)
    redis.call('PUBLISH', keys.notify(id), 'ready')
  end

  function w.again(id, job, failure)
    if job.kind ~= 'J' then return w.set_aside(id, keys.processing, job.why) end
    local later = failure.due_ms > shared.now_ms
    local changes = { status = '"pending"', updated_at = stamp(),
      attempts = string.format('%d', failure.failures),
      error = text.quoted(failure.error), scheduled_for = later and '"' .. shared.time(failure.due_ms) .. '"'
      or false }
    rewrite(id, job, changes)
    if later then
      redis.call('ZADD', keys.scheduled, math.ceil(failure.due_ms / 1000), id)
    else
      redis.call('LPUSH', shared.home(id, job), id)
    end
    leave(id)
  end

  function w.bury(id, job, failure)
    local changes = { status = '"failed"', updated_at = stamp(),
      attempts = string.format('%d', failure.failures),
      error = text.quoted(failure.error), scheduled_for = false }
    result(id, shared.error_s, { 'status', 'failed', 'duration_ms', string.format('%d', failure.took_ms or 0),
      'error', failure.error })
    -- A call that was cut off after this has buried it already.
    local there = (failure.redo or job.status == 'failed') and redis.call('LPOS', keys.dead, id)
    if not there then redis.call('LPUSH', keys.dead, id) end
    rewrite(id, job, changes, shared.dead_s)
    leave(id)
    redis.call('PUBLISH', keys.notify(id), 'ready')
  end

  function w.drop(id)
    redis.call('DEL', keys.job(id), keys.result(id), shared.prefix .. 'from:' .. id)
    leave(id)
    redis.call('PUBLISH', keys.notify(id), 'ready')
  end

  -- The live programs' schedulers give their jobs no id, so all of them share one key. Such a job gets an id
  -- here, and stays in its place.
  local function named(place)
    local job = w.read('')
    if not job or job.kind ~= 'J' or place == keys.scheduled then return false end
    local id = string.format('cron:unnamed:%.0f-%d', shared.now_ms,
      redis.call('INCR', shared.prefix .. 'seq'))
    redis.call('SET', keys.job(id), text.with(job.body, { id = text.quoted(id) }))
    redis.call('RPUSH', place, id)
    redis.call('LREM', place, -1, '')
    return true
  end

  -- Move it to the dead, with the record that the live programs write for such a job. A readable job stays
  -- readable, and a key that is no string is not changed.
  function w.set_aside(id, place, why)
    if id == '' and named(place) then return end
    local job, body = w.read(id), redis.pcall('GET', keys.job(id))
    local stub
    if job and job.kind == 'J' then
      stub = text.with(body, { status = '"failed"', error = text.quoted(why or '') })
    elseif not body then
      stub = '{"error":"Job data not found (corrupted reference)","id":' .. text.quoted(id) .. '}'
    elseif type(body) == 'string' then
      if #body > 500 then body = string.sub(body, 1, 500) .. '...' end
      stub = '{"corrupted_data":' .. text.quoted(body) .. ',"error":'
        .. text.quoted('Failed to unmarshal job: ' .. (why or ''))
        .. ',"id":' .. text.quoted(id) .. '}'
    end
    redis.call('LPUSH', keys.dead, id)
    if stub then redis.call('SET', keys.job(id), stub, 'EX', shared.dead_s) end
    if place == keys.scheduled then
      redis.call('ZREM', place, id)
    else
      redis.call('LREM', place or keys.processing, -1, id)
    end
  end
end

-- Reads of the queue for display, and admin actions.
local function wire_looks(w, shared)
  local keys, text = shared.keys, shared.text

  -- All known waiting lists, or those of these routes, in the order of claims.
  local function waiting(routes)
    local lists = {}
    routes = routes or keys.routes()
    for _, priority in ipairs(keys.priorities) do
      for _, route in ipairs(routes) do
        for _, list in ipairs(keys.lists(route, priority)) do lists[#lists + 1] = list end
      end
    end
    return lists
  end

  -- A page of ids of several lists, one after the other, each read from its right end.
  local function page(lists, offset, limit, newest_first)
    local ids = {}
    for at = 1, #lists do
      local list = lists[newest_first and #lists + 1 - at or at]
      local size = redis.call('LLEN', list)
      local want = limit - #ids
      if want > 0 and offset < size then
        if newest_first then
          for _, id in ipairs(redis.call('LRANGE', list, offset, offset + want - 1)) do ids[#ids + 1] = id end
        else
          local found = redis.call('LRANGE', list, -offset - want, -offset - 1)
          for place = #found, 1, -1 do ids[#ids + 1] = found[place] end
        end
      end
      offset = math.max(0, offset - size)
    end
    return ids
  end

  function w.list(state, offset, limit, newest_first, worker)
    local flat = {}
    if state == 'delayed' or state == 'done' then
      local key, unit = state == 'done' and shared.done or keys.scheduled, state == 'done' and 1 or 1000
      local words = redis.call(newest_first and 'ZREVRANGE' or 'ZRANGE', key, offset, offset + limit - 1,
        'WITHSCORES')
      for at = 1, #words, 2 do
        flat[at], flat[at + 1] = words[at], string.format('%.0f', tonumber(words[at + 1]) * unit)
      end
      return flat
    end
    local lists = state == 'waiting' and waiting(worker and worker.routes)
      or state == 'active' and { keys.processing } or state == 'dead' and { keys.dead } or {}
    for _, id in ipairs(page(lists, offset, limit, newest_first)) do
      local score = '0'
      if state == 'active' then score = redis.call('ZSCORE', shared.prefix .. 'active', id) or '0' end
      if state == 'dead' then
        local job = w.read(id)
        score = string.format('%.0f', job and job.updated_ms or 0)
      end
      flat[#flat + 1], flat[#flat + 2] = id, score
    end
    return flat
  end

  function w.count(state)
    if state == 'delayed' then return redis.call('ZCARD', keys.scheduled) end
    if state == 'done' then return redis.call('ZCARD', shared.done) end
    if state == 'active' then return redis.call('LLEN', keys.processing) end
    if state == 'dead' then return redis.call('LLEN', keys.dead) end
    local total = 0
    if state == 'waiting' then
      for _, list in ipairs(waiting()) do total = total + redis.call('LLEN', list) end
    end
    return total
  end

  -- A stored failure of a job that will run again is not its end.
  function w.ended(id)
    local job = w.read(id)
    local flat = redis.pcall('HGETALL', keys.result(id))
    local stored = {}
    for at = 1, flat.err and 0 or #flat, 2 do stored[flat[at]] = flat[at + 1] end
    local status = job and job.status or not job and stored.status or nil
    if job and job.kind == 'corrupt' and redis.call('LPOS', keys.dead, id) then status = 'failed' end
    if status ~= 'completed' and status ~= 'failed' then return nil end
    local ended_ms = job and job.updated_ms or 0
    if ended_ms == 0 then ended_ms = rfc3339_ms(stored.completed_at) or 0 end
    local record = '{"ok":' .. tostring(status == 'completed') .. ',"ended_ms":'
      .. string.format('%d', ended_ms)
    if status == 'completed' then
      local value = stored.result
      -- A value that is no JSON is returned as a text.
      if value and not pcall(cjson.decode, '[' .. value .. ']') then value = text.quoted(value) end
      local took_ms = string.match(stored.duration_ms or '', '^%d+$') or '0'
      record = record .. ',"fence":0,"took_ms":' .. took_ms .. ',"value":' .. (value or 'null') .. '}'
      return { state = 'finished', ended_ms = ended_ms, error = '', record = record }
    end
    local why = job and job.kind == 'J' and job.error ~= '' and job.error or stored.error or job and job.why
      or ''
    return { state = 'dead', ended_ms = ended_ms, error = why,
      record = record .. ',"error":' .. text.quoted(why) .. '}' }
  end

  local function anew(job)
    return text.with(job.body, { status = '"pending"', updated_at = '"' .. shared.time(shared.now_ms) .. '"',
      scheduled_for = false,
      attempts = '0' })
  end

  -- `redo`: an earlier copy of the call was cut off, perhaps after it put the job into its list.
  function w.requeue(id, job, redo)
    redis.call('DEL', keys.result(id))
    redis.call('SET', keys.job(id), anew(job))
    if not (redo and shared.waits_in(id, job)) then redis.call('LPUSH', shared.home(id, job), id) end
    redis.call('LREM', keys.dead, 0, id)
  end

  function w.run_now(id, job, redo)
    local changes = { status = job.status == 'scheduled' and '"pending"' or nil, scheduled_for = false }
    redis.call('SET', keys.job(id), text.with(job.body, changes))
    if not (redo and shared.waits_in(id, job)) then redis.call('LPUSH', shared.home(id, job), id) end
    redis.call('ZREM', keys.scheduled, id)
  end

  function w.remove(id, state)
    local job = w.read(id)
    if state == 'waiting' then
      local list = shared.waits_in(id, job and job.kind == 'J' and job or nil)
      if list then redis.call('LREM', list, 0, id) end
    elseif state == 'delayed' then
      redis.call('ZREM', keys.scheduled, id)
    elseif state == 'active' then
      redis.call('LREM', keys.processing, 0, id)
    elseif state == 'dead' then
      redis.call('LREM', keys.dead, 0, id)
    elseif state == 'done' then
      redis.call('ZREM', shared.done, id)
    end
    redis.call('DEL', keys.job(id), keys.result(id), shared.prefix .. 'from:' .. id)
  end

  -- Ended jobs are in no list, so the keys themselves are scanned, from where the last call has stopped.
  function w.purge(most)
    local root, gone, looked = keys.root, 0, 0
    local cursor = redis.call('GET', shared.prefix .. 'purge') or '0'
    local kinds = { '^job:', '^result:', '^route:.*:queue:%a+$', '^queue:%a+$',
      keys.documented and '^cron:state:' or '^schedules:',
      keys.documented and '^cron:lock:' or '^schedule_lock:' }
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
    if cursor == '0' then
      redis.call('DEL', shared.prefix .. 'purge')
    else
      redis.call('SET', shared.prefix .. 'purge', cursor, 'EX', 3600)
    end
    return cursor ~= '0'
  end

  -- The engine's own keys that only this format uses.
  function w.obliterated()
    for _, name in ipairs({ 'routes', 'adopting', 'purge', 'seq', 'done' }) do
      redis.call('DEL', shared.prefix .. name)
    end
  end

  -- This format has no pauses: a pause stops only the workers of this engine.
  function w.pause() end
  function w.resume() end
  function w.paused() return false end
end
