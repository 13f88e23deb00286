-- How leases end on the wire, each with all that has to be written. The place that takes the job over comes first; the lock and the
-- counter come free last.
local function bridge_ends(w)
  -- Writes: not active any more, the lock free, the counter of the type lower by one.
  local function leave(id, job)
    local running = w.at_running(job and job.name or '')
    if redis.call('SREM', w.at_active, id) == 1 and job and job.name and (tonumber(w.text(running)) or 0) > 0 then
      redis.pcall('DECR', running)
    end
    redis.call('DEL', w.at_lock(id))
  end
  -- Writes the failed runs into the job's JSON, and nothing else in it changes.
  local function note_attempts(id, job, count)
    local members = job.raw and job.failures ~= count and w.members(job.raw)
    if not members then return end
    members.set('attempts', w.ms(count))
    redis.call('SET', w.at_data(id), members.text(), 'KEEPTTL')
  end
  local function result(id, json, took_ms)
    local ended = ',"completedAt":' .. w.ms(w.now_ms) .. ',"processingTime":' .. w.ms(math.max(0, took_ms or 0)) .. '}'
    redis.call('SET', w.at_result(id), json .. ended, 'EX', 86400)
  end
  -- An error as the original writes it: message, stack, name.
  local function failed(error, trace)
    local name, message = string.match(error, '^([%a_][%w_.]*): (.*)$')
    local stack = trace and trace ~= '' and trace or error
    return '{"success":false,"error":{"message":' .. w.quoted(message or error) .. ',"stack":' .. w.quoted(stack) .. ',"name":'
      .. w.quoted(name or 'Error') .. '}'
  end
  local function to_dead(id, error, trace, took_ms)
    if not redis.call('LPOS', w.at_dead, id, 'MAXLEN', 100) then redis.call('LPUSH', w.at_dead, id) end
    result(id, failed(error, trace), took_ms)
    redis.call('SET', w.at_status(id), 'dead')
  end
  w.leave, w.to_dead = leave, to_dead

  -- Writes. Where an earlier copy was cut off (`redo`) it may be in its place already.
  local function again_now(id, priority, redo)
    if not (redo and redis.call('LPOS', w.at_waiting, id)) then w.push(id, priority) end
  end

  -- Writes. A job that has ended for its foreign client, which could not release it, is not run again.
  function w.back(id, job, front)
    local status = w.text(w.at_status(id))
    if job and job.kind == 'J' and status ~= 'completed' and status ~= 'dead' and status ~= 'failed' then
      -- One that a take which was cut off has left in the list stays there.
      if not redis.call('LPOS', w.at_waiting, id, 'MAXLEN', 1000) then
        redis.call(front and 'LPUSH' or 'RPUSH', w.at_waiting, id)
      end
      redis.call('SET', w.at_status(id), 'waiting')
    elseif not (job and job.kind == 'J') and not status then
      to_dead(id, job and job.why or 'its data is gone', '')
    end
    leave(id, job)
  end

  -- Writes.
  function w.done(id, job, value, took_ms)
    result(id, '{"success":true' .. (value and ',"data":' .. value or ''), took_ms)
    redis.call('SET', w.at_status(id), 'completed')
    -- The format lists no finished jobs: of ours the last 1,000 are.
    redis.call('ZADD', w.at_done, w.ms(w.now_ms), id)
    redis.call('ZREMRANGEBYRANK', w.at_done, 0, -1001)
    leave(id, job)
  end

  -- Writes.
  function w.again(id, job, failure)
    local later = failure.due_ms > w.now_ms
    if later then w.delay(id, failure.due_ms) else again_now(id, job.priority, failure.redo) end
    note_attempts(id, job, failure.failures)
    redis.call('SET', w.at_status(id), later and 'delayed' or 'waiting')
    leave(id, job)
  end

  -- Writes. The last failure is not counted on the wire: `attempts` of the original are the runs after the first one.
  function w.bury(id, job, failure)
    to_dead(id, failure.error or '', failure.trace, 0)
    if job.kind == 'J' then note_attempts(id, job, math.min(failure.failures or job.failures, math.max(job.failures, job.attempts - 1))) end
    leave(id, job)
  end

  -- Writes. `failed` is the one documented status that nothing else says.
  function w.drop(id, job, outcome)
    result(id, failed('Ended: ' .. outcome, ''), 0)
    redis.call('SET', w.at_status(id), 'failed')
    leave(id, job)
  end

  -- Writes.
  function w.set_aside(id, place, why)
    to_dead(id, 'SetAside: ' .. why, '', 0)
    redis.call('LREM', w.at_waiting, 1, id)
    w.undelay(id)
    if redis.call('SISMEMBER', w.at_active, id) == 1 then leave(id, w.read(id)) end
  end

  -- Writes. A dead job has all its runs again. The status last: until then it counts as dead, and a copy of the call does the rest.
  function w.requeue(id, job)
    again_now(id, job.priority, true)
    note_attempts(id, job, 0)
    redis.call('LREM', w.at_dead, 0, id)
    redis.call('DEL', w.at_result(id))
    redis.call('SET', w.at_status(id), 'waiting')
  end

  -- Writes.
  function w.run_now(id, job)
    again_now(id, job.priority, true)
    redis.call('SET', w.at_status(id), 'waiting')
    w.undelay(id)
  end

  -- Writes: percent and message, which is all that the format shows of progress.
  function w.noted(id, job, body)
    local read, told = pcall(cjson.decode, '{' .. body)
    if not read then return end
    local percent = string.match(body, '"percent":([%d.eE+-]+)') or '0'
    local message = type(told.message) == 'string' and ',"message":' .. w.quoted(told.message) or ''
    redis.call('SET', w.at_progress(id), '{"percent":' .. percent .. message .. ',"updatedAt":' .. w.ms(w.now_ms) .. '}')
  end
end
