-- How runs end. Results are stored of jobs that have ended for good: the live programs store one after each failed run, so that whoever
-- waits is told of a failure that a later run makes good.
local function wire_ends(w, shared)
  local keys, text = shared.keys, shared.text

  local function stamp() return '"' .. shared.time(shared.now_ms) .. '"' end

  -- The job itself; one that is gone, or that somebody has overwritten with what is none, cannot be written to.
  local function rewrite(id, job, changes, ttl_s)
    if job.kind ~= 'J' then return end
    local body = text.with(job.body, changes)
    if ttl_s then redis.call('SET', keys.job(id), body, 'EX', ttl_s) else redis.call('SET', keys.job(id), body) end
  end

  local function leave(id) redis.call('LREM', keys.processing, 1, id) end

  -- A new hash: nothing of a result before it stays.
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
    local changes = { status = '"pending"', updated_at = stamp(), attempts = string.format('%d', failure.failures),
      error = text.quoted(failure.error), scheduled_for = later and '"' .. shared.time(failure.due_ms) .. '"' or false }
    rewrite(id, job, changes)
    if later then
      redis.call('ZADD', keys.scheduled, math.ceil(failure.due_ms / 1000), id)
    else
      redis.call('LPUSH', shared.home(id, job), id)
    end
    leave(id)
  end

  function w.bury(id, job, failure)
    local changes = { status = '"failed"', updated_at = stamp(), attempts = string.format('%d', failure.failures),
      error = text.quoted(failure.error), scheduled_for = false }
    result(id, shared.error_s, { 'status', 'failed', 'duration_ms', string.format('%d', failure.took_ms or 0), 'error', failure.error })
    -- What was cut off behind this has buried it already.
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

  -- The live programs' schedulers give their jobs no id, so that all of them share one key: such a one gets an id here, and stays where
  -- it is.
  local function named(place)
    local job = w.read('')
    if not job or job.kind ~= 'J' or place == keys.scheduled then return false end
    local id = string.format('cron:unnamed:%.0f-%d', shared.now_ms, redis.call('INCR', shared.prefix .. 'seq'))
    redis.call('SET', keys.job(id), text.with(job.body, { id = text.quoted(id) }))
    redis.call('RPUSH', place, id)
    redis.call('LREM', place, -1, '')
    return true
  end

  -- Among the dead, with the record that the live programs leave of such a one. A job that can be read stays readable, and a key that
  -- is no string stays as it is.
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
      stub = '{"corrupted_data":' .. text.quoted(body) .. ',"error":' .. text.quoted('Failed to unmarshal job: ' .. (why or ''))
        .. ',"id":' .. text.quoted(id) .. '}'
    end
    redis.call('LPUSH', keys.dead, id)
    if stub then redis.call('SET', keys.job(id), stub, 'EX', shared.dead_s) end
    if place == keys.scheduled then redis.call('ZREM', place, id) else redis.call('LREM', place or keys.processing, -1, id) end
  end
end
