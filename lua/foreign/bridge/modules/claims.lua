-- BridgeMQ: how jobs are claimed, and how they end.
-- USES bridge/wire: bridge_matches
--      foreign/format: json_members

-- What a claim needs of the wire, and the engine's leases on it. As the format requires, the lock's value is
-- the name of the worker; the engine's token is not on the wire. That name is kept with the token
-- (`run:<id>`, `held_as`). So a lock of the engine is not mistaken for one of a foreign client, even if a
-- later call completes the end of a lease.
local function bridge_claims(w)
  function w.candidates(from, count)
    local found = {}
    for at, id in ipairs(redis.call('LRANGE', w.at_waiting, from, from + count - 1)) do
      found[at] = { id = id, place = from + at - 1 }
    end
    return found, #found == count and from + count or 0
  end

  local function run(id) return w.prefix .. 'run:' .. id end
  local function owner(id)
    local known = redis.pcall('HGET', run(id), 'held_as')
    return type(known) == 'string' and known or nil
  end

  function w.locked(id)
    return redis.call('EXISTS', w.at_lock(id)) == 1 and w.text(w.at_lock(id)) ~= owner(id)
  end

  -- Whether as many jobs of the type are active, or were claimed in this minute, as the job allows. As in the
  -- original, there is room where there is no counter.
  local function full(job)
    local running = job.concurrent and tonumber(w.text(w.at_running(job.name)))
    if running and running >= job.concurrent then return true end
    local claimed = job.per_minute and tonumber(w.text(w.at_minute(job.name)))
    return claimed and claimed >= job.per_minute
  end

  -- Whether all parents of a job have completed. The second value: why they never will.
  local function ready(job)
    for _, parent in ipairs(job.needs or {}) do
      local status, gone = w.text(w.at_status(parent)), w.text(w.prefix .. 'gone:' .. parent)
      status = status or gone
      if status == 'dead' or status == 'failed' then
        return false, 'it needs ' .. parent .. ', which is ' .. status
      end
      if status ~= 'completed' then return false end
    end
    return true
  end

  -- A job that can never run is for every worker that it asks for: its claim buries the job.
  function w.elsewhere(job, worker)
    if not bridge_matches(job.target, worker) then return true end
    local now, never = ready(job)
    return not now and not never
  end

  -- Writes only that a type has a limit, so that the sweeps check its counter.
  function w.refuses(job)
    local now, never = ready(job)
    if not now then return true, never end
    if not full(job) then return false end
    if job.concurrent then redis.call('SADD', w.at_limited, job.name) end
    return true
  end

  -- Writes. The job becomes active before it leaves the list. If the call is cut off in between, it is in
  -- both, and a sweep finds it.
  function w.take(id, job, place, lease)
    local at = redis.call('LPOS', w.at_waiting, id, 'MAXLEN', place + 1)
    -- Checked again, because several jobs are chosen before the first is taken.
    if not at or full(job) then return false end
    -- A second entry of a job that has ended. The runs of a foreign cron entry share one id and one status.
    local status = w.text(w.at_status(id))
    if not redis.call('ZSCORE', w.at_cron, id) and (status == 'completed'
        or (status == 'dead' and redis.call('LPOS', w.at_dead, id))) then
      redis.call('LREM', w.at_waiting, 1, id)
      return false
    end
    redis.call('HSET', run(id), 'held_as', lease.owner)
    if not redis.call('SET', w.at_lock(id), lease.owner, 'NX', 'PX', w.ms(lease.lease_ms)) then
      return false
    end
    local new = redis.call('SADD', w.at_active, id) == 1
    redis.call('LREM', w.at_waiting, 1, id)
    -- A job that is still active from an expired lock was counted then. A counter of another type is not
    -- used.
    if new then redis.pcall('INCR', w.at_running(job.name)) end
    if job.per_minute then
      local minute = w.at_minute(job.name)
      if not redis.call('SET', minute, 1, 'NX', 'EX', 60) then
        redis.pcall('INCR', minute)
        redis.call('EXPIRE', minute, 60, 'NX')
      end
    end
    redis.call('SET', w.at_status(id), 'active')
    return true
  end

  -- Writes.
  function w.extend(id, lease)
    redis.call('SET', w.at_lock(id), owner(id) or lease.owner, 'PX', w.ms(lease.lease_ms))
  end

  function w.mine(id)
    local holder = w.text(w.at_lock(id))
    if holder then return holder == owner(id) end
    return redis.call('SISMEMBER', w.at_active, id) == 1
  end

  -- Jobs that are due at the same time keep the order in which they were delayed. Those of foreign clients
  -- come first, because their order is unknown.
  function w.due(most)
    local found = redis.call('ZRANGE', w.at_delayed, '-inf', w.ms(w.now_ms), 'BYSCORE', 'LIMIT', 0, most,
      'WITHSCORES')
    local entries, ids = {}, {}
    for at = 1, #found, 2 do
      local tied = found[at + 1] == found[at - 1] or found[at + 1] == found[at + 3]
      local order = tied and tonumber(redis.call('HGET', w.at_order, found[at]) or 0) or 0
      entries[#entries + 1] = { id = found[at], due_ms = tonumber(found[at + 1]), order = order, at = at }
    end
    table.sort(entries, function(one, other)
      if one.due_ms ~= other.due_ms then return one.due_ms < other.due_ms end
      if one.order ~= other.order then return one.order < other.order end
      return one.at < other.at
    end)
    for at, entry in ipairs(entries) do ids[at] = entry.id end
    return ids
  end

  function w.due_at(id) return tonumber(redis.call('ZSCORE', w.at_delayed, id) or 0) end
  function w.next_due_ms() return tonumber(redis.call('ZRANGE', w.at_delayed, 0, 0, 'WITHSCORES')[2]) end

  -- Writes. The recorded order of jobs that foreign clients promote stays until no job is delayed any more.
  function w.undelay(id)
    redis.call('ZREM', w.at_delayed, id)
    redis.call('HDEL', w.at_order, id)
    if redis.call('EXISTS', w.at_delayed) == 0 then redis.call('DEL', w.at_order) end
  end

  -- Writes. The job goes to the end of the waiting jobs, as in the original, whatever its priority. `redo`: a
  -- copy that was cut off may have put it there.
  function w.promote(id, redo)
    local raw = w.text(w.at_data(id))
    if raw then
      if not (redo and redis.call('LPOS', w.at_waiting, id)) then redis.call('RPUSH', w.at_waiting, id) end
      redis.call('SET', w.at_status(id), 'waiting')
    end
    w.undelay(id)
    return raw ~= nil
  end
end

-- How leases end on the wire. The place that takes the job over is written first; the lock and the counter
-- come free last.
local function bridge_ends(w)
  -- Writes: removes the job from the active ones, frees its lock and lowers the counter of its type by one.
  local function leave(id, job)
    local running = w.at_running(job and job.name or '')
    if redis.call('SREM', w.at_active, id) == 1 and job and job.name
        and (tonumber(w.text(running)) or 0) > 0 then
      redis.pcall('DECR', running)
    end
    redis.call('DEL', w.at_lock(id))
  end
  -- Writes the number of failed runs into the job's JSON, and changes nothing else in it.
  local function note_attempts(id, job, count)
    local members = job.raw and job.failures ~= count and json_members(job.raw)
    if not members then return end
    members.set('attempts', w.ms(count))
    redis.call('SET', w.at_data(id), members.text(), 'KEEPTTL')
  end
  local function result(id, json, took_ms)
    local ended = ',"completedAt":' .. w.ms(w.now_ms) .. ',"processingTime":'
      .. w.ms(math.max(0, took_ms or 0)) .. '}'
    redis.call('SET', w.at_result(id), json .. ended, 'EX', 86400)
  end
  -- An error in the original's form: message, stack, name.
  local function failed(error, trace)
    local name, message = string.match(error, '^([%a_][%w_.]*): (.*)$')
    local stack = trace and trace ~= '' and trace or error
    return '{"success":false,"error":{"message":' .. w.quoted(message or error) .. ',"stack":'
      .. w.quoted(stack) .. ',"name":'
      .. w.quoted(name or 'Error') .. '}'
  end
  local function to_dead(id, error, trace, took_ms)
    if not redis.call('LPOS', w.at_dead, id, 'MAXLEN', 100) then redis.call('LPUSH', w.at_dead, id) end
    result(id, failed(error, trace), took_ms)
    redis.call('SET', w.at_status(id), 'dead')
  end
  w.leave, w.to_dead = leave, to_dead

  -- Writes. If an earlier copy was cut off (`redo`), the job may be in its place already.
  local function again_now(id, priority, redo)
    if not (redo and redis.call('LPOS', w.at_waiting, id)) then w.push(id, priority) end
  end

  -- Writes. A job that its foreign client has ended, but could not release, is not run again.
  function w.back(id, job, front)
    local status = w.text(w.at_status(id))
    if job and job.kind == 'J' and status ~= 'completed' and status ~= 'dead' and status ~= 'failed' then
      -- An entry that a take which was cut off has left in the list stays there.
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
    -- The format lists no finished jobs: the engine lists its own last 1,000.
    redis.call('ZADD', w.at_done, w.ms(w.now_ms), id)
    redis.call('ZREMRANGEBYRANK', w.at_done, 0, -1001)
    leave(id, job)
  end

  -- Writes.
  function w.again(id, job, failure)
    -- An earlier copy may have delayed it, and its time may have come since.
    local waits = failure.redo and redis.call('LPOS', w.at_waiting, id)
    local later = failure.due_ms > w.now_ms and not waits
    if later then w.delay(id, failure.due_ms) elseif not waits then again_now(id, job.priority) end
    note_attempts(id, job, failure.failures)
    redis.call('SET', w.at_status(id), later and 'delayed' or 'waiting')
    leave(id, job)
  end

  -- Writes. The last failure is not counted on the wire, because the original's `attempts` are the runs after
  -- the first one.
  function w.bury(id, job, failure)
    to_dead(id, failure.error or '', failure.trace, 0)
    if job.kind == 'J' then
      note_attempts(id, job, math.min(failure.failures or job.failures,
        math.max(job.failures, job.attempts - 1)))
    end
    leave(id, job)
  end

  -- Writes. Of the documented statuses `failed` is the only one without another use. The error of a skipped
  -- job is its result, as that of a dead one.
  function w.drop(id, job, outcome, error)
    result(id, failed(error or 'Ended: ' .. outcome, ''), 0)
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

  -- Writes. The job has all its runs again. The status last: until then the job counts as dead, and a copy of
  -- the call does the rest.
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

  function w.progress(id)
    local members = json_members(w.text(w.at_progress(id)) or '')
    local percent = members and members.value('percent')
    if type(percent) ~= 'number' then return nil end
    local message = type(members.value('message')) == 'string' and members.raw('message') or nil
    local at_ms = members.value('updatedAt')
    return percent, message, type(at_ms) == 'number' and math.floor(at_ms) or nil
  end

  -- Writes percent and message, the only progress fields of the format.
  function w.noted(id, job, body)
    local read, progress = pcall(cjson.decode, '{' .. body)
    if not read then return end
    local percent = string.match(body, '"percent":([%d.eE+-]+)') or '0'
    local message = type(progress.message) == 'string' and ',"message":' .. w.quoted(progress.message) or ''
    redis.call('SET', w.at_progress(id), '{"percent":' .. percent .. message .. ',"updatedAt":'
      .. w.ms(w.now_ms) .. '}')
  end
end
