-- BridgeMQ: how jobs are claimed, and how they end.
-- USES bridge/wire: at_data, at_lock, at_minute, at_progress, at_result, at_running, at_status,
--        bridge_matches, delay_job, json_quoted, ms_text, push_waiting, text_at, wire_read
--      foreign/format: json_members, json_raw, json_set, json_text, json_value

-- What a claim needs of the wire, and the engine's leases on it. As the format requires, the lock's value is
-- the name of the worker; the engine's token is not on the wire. That name is kept with the token
-- (`run:<id>`, `held_as`). So a lock of the engine is not mistaken for one of a foreign client, even if a
-- later call completes the end of a lease.

local function wire_candidates(w, from, count)
  local found = {}
  for at, id in ipairs(redis.call('LRANGE', w.at_waiting, from, from + count - 1)) do
    found[at] = { id = id, place = from + at - 1 }
  end
  return found, #found == count and from + count or 0
end

local function at_run(w, id)
  return w.prefix .. 'run:' .. id
end

local function owner_of(w, id)
  local known = redis.pcall('HGET', at_run(w, id), 'held_as')
  return type(known) == 'string' and known or nil
end

local function wire_locked(w, id)
  return redis.call('EXISTS', at_lock(w, id)) == 1 and text_at(at_lock(w, id)) ~= owner_of(w, id)
end

-- Whether as many jobs of the type are active, or were claimed in this minute, as the job allows. As in the
-- original, there is room where there is no counter.
local function type_is_full(w, job)
  local running = job.concurrent and tonumber(text_at(at_running(w, job.name)))
  if running and running >= job.concurrent then return true end
  local claimed = job.per_minute and tonumber(text_at(at_minute(w, job.name)))
  return claimed and claimed >= job.per_minute
end

-- Whether all parents of a job have completed. The second value: why they never will.
local function parents_ready(w, job)
  for _, parent in ipairs(job.needs or {}) do
    local status, gone = text_at(at_status(w, parent)), text_at(w.prefix .. 'gone:' .. parent)
    status = status or gone
    if status == 'dead' or status == 'failed' then
      return false, 'it needs ' .. parent .. ', which is ' .. status
    end
    if status ~= 'completed' then return false end
  end
  return true
end

-- A job that can never run is for every worker that it asks for: its claim buries the job.
local function wire_elsewhere(w, job, worker)
  if not bridge_matches(job.target, worker) then return true end
  local now, never = parents_ready(w, job)
  return not now and not never
end

-- Writes only that a type has a limit, so that the sweeps check its counter.
local function wire_refuses(w, job)
  local now, never = parents_ready(w, job)
  if not now then return true, never end
  if not type_is_full(w, job) then return false end
  if job.concurrent then redis.call('SADD', w.at_limited, job.name) end
  return true
end

-- Writes. The job becomes active before it leaves the list. If the call is cut off in between, it is in
-- both, and a sweep finds it.
local function wire_take(w, id, job, place, lease)
  local at = redis.call('LPOS', w.at_waiting, id, 'MAXLEN', place + 1)
  -- Checked again, because several jobs are chosen before the first is taken.
  if not at or type_is_full(w, job) then return false end
  -- A second entry of a job that has ended. The runs of a foreign cron entry share one id and one status.
  local status = text_at(at_status(w, id))
  if not redis.call('ZSCORE', w.at_cron, id) and (status == 'completed'
      or (status == 'dead' and redis.call('LPOS', w.at_dead, id))) then
    redis.call('LREM', w.at_waiting, 1, id)
    return false
  end
  redis.call('HSET', at_run(w, id), 'held_as', lease.owner)
  if not redis.call('SET', at_lock(w, id), lease.owner, 'NX', 'PX', ms_text(lease.lease_ms)) then
    return false
  end
  local new = redis.call('SADD', w.at_active, id) == 1
  redis.call('LREM', w.at_waiting, 1, id)
  -- A job that is still active from an expired lock was counted then. A counter of another type is not
  -- used.
  if new then redis.pcall('INCR', at_running(w, job.name)) end
  if job.per_minute then
    local minute = at_minute(w, job.name)
    if not redis.call('SET', minute, 1, 'NX', 'EX', 60) then
      redis.pcall('INCR', minute)
      redis.call('EXPIRE', minute, 60, 'NX')
    end
  end
  redis.call('SET', at_status(w, id), 'active')
  return true
end

-- Writes.
local function wire_extend(w, id, lease)
  redis.call('SET', at_lock(w, id), owner_of(w, id) or lease.owner, 'PX', ms_text(lease.lease_ms))
end

local function wire_mine(w, id)
  local holder = text_at(at_lock(w, id))
  if holder then return holder == owner_of(w, id) end
  return redis.call('SISMEMBER', w.at_active, id) == 1
end

-- Jobs that are due at the same time keep the order in which they were delayed. Those of foreign clients
-- come first, because their order is unknown.
local function wire_due(w, most)
  local found = redis.call('ZRANGE', w.at_delayed, '-inf', ms_text(w.now_ms), 'BYSCORE', 'LIMIT', 0, most,
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

local function wire_due_at(w, id)
  return tonumber(redis.call('ZSCORE', w.at_delayed, id) or 0)
end

local function wire_next_due_ms(w)
  return tonumber(redis.call('ZRANGE', w.at_delayed, 0, 0, 'WITHSCORES')[2])
end

-- Writes. The recorded order of jobs that foreign clients promote stays until no job is delayed any more.
local function undelay(w, id)
  redis.call('ZREM', w.at_delayed, id)
  redis.call('HDEL', w.at_order, id)
  if redis.call('EXISTS', w.at_delayed) == 0 then redis.call('DEL', w.at_order) end
end

-- Writes. The job goes to the end of the waiting jobs, as in the original, whatever its priority. `redo`: a
-- copy that was cut off may have put it there.
local function wire_promote(w, id, redo)
  local raw = text_at(at_data(w, id))
  if raw then
    if not (redo and redis.call('LPOS', w.at_waiting, id)) then redis.call('RPUSH', w.at_waiting, id) end
    redis.call('SET', at_status(w, id), 'waiting')
  end
  undelay(w, id)
  return raw ~= nil
end

-- How leases end on the wire. The place that takes the job over is written first; the lock and the counter
-- come free last.

-- Writes: removes the job from the active ones, frees its lock and lowers the counter of its type by one.
local function leave_active(w, id, job)
  local running = at_running(w, job and job.name or '')
  if redis.call('SREM', w.at_active, id) == 1 and job and job.name
      and (tonumber(text_at(running)) or 0) > 0 then
    redis.pcall('DECR', running)
  end
  redis.call('DEL', at_lock(w, id))
end

-- Writes the number of failed runs into the job's JSON, and changes nothing else in it.
local function note_attempts(w, id, job, count)
  local members = job.raw and job.failures ~= count and json_members(job.raw)
  if not members then return end
  json_set(members, 'attempts', ms_text(count))
  redis.call('SET', at_data(w, id), json_text(members), 'KEEPTTL')
end

local function write_result(w, id, json, took_ms)
  local ended = ',"completedAt":' .. ms_text(w.now_ms) .. ',"processingTime":'
    .. ms_text(math.max(0, took_ms)) .. '}'
  redis.call('SET', at_result(w, id), json .. ended, 'EX', 86400)
end

-- An error in the original's form: message, stack, name.
local function error_json(error, trace)
  local name, message = string.match(error, '^([%a_][%w_.]*): (.*)$')
  local stack = trace and trace ~= '' and trace or error
  return '{"success":false,"error":{"message":' .. json_quoted(message or error) .. ',"stack":'
    .. json_quoted(stack) .. ',"name":'
    .. json_quoted(name or 'Error') .. '}'
end

local function to_dead(w, id, error, trace)
  if not redis.call('LPOS', w.at_dead, id, 'MAXLEN', 100) then redis.call('LPUSH', w.at_dead, id) end
  write_result(w, id, error_json(error, trace), 0)
  redis.call('SET', at_status(w, id), 'dead')
end

-- Writes. If an earlier copy was cut off (`redo`), the job may be in its place already.
local function again_now(w, id, priority, redo)
  if not (redo and redis.call('LPOS', w.at_waiting, id)) then push_waiting(w, id, priority) end
end

-- Writes. A job that its foreign client has ended, but could not release, is not run again.
local function wire_back(w, id, job)
  local status = text_at(at_status(w, id))
  if job and job.kind == 'J' and status ~= 'completed' and status ~= 'dead' and status ~= 'failed' then
    -- An entry that a take which was cut off has left in the list stays there.
    if not redis.call('LPOS', w.at_waiting, id, 'MAXLEN', 1000) then
      redis.call('LPUSH', w.at_waiting, id)
    end
    redis.call('SET', at_status(w, id), 'waiting')
  elseif not (job and job.kind == 'J') and not status then
    to_dead(w, id, job and job.why or 'its data is gone', '')
  end
  leave_active(w, id, job)
end

-- Writes.
local function wire_done(w, id, job, value, took_ms)
  write_result(w, id, '{"success":true' .. (value and ',"data":' .. value or ''), took_ms)
  redis.call('SET', at_status(w, id), 'completed')
  -- The format lists no finished jobs: the engine lists its own last 1,000.
  redis.call('ZADD', w.at_done, ms_text(w.now_ms), id)
  redis.call('ZREMRANGEBYRANK', w.at_done, 0, -1001)
  leave_active(w, id, job)
end

-- Writes.
local function wire_again(w, id, job, failure)
  -- An earlier copy may have delayed it, and its time may have come since.
  local waits = failure.redo and redis.call('LPOS', w.at_waiting, id)
  local later = failure.due_ms > w.now_ms and not waits
  if later then delay_job(w, id, failure.due_ms) elseif not waits then again_now(w, id, job.priority) end
  note_attempts(w, id, job, failure.failures)
  redis.call('SET', at_status(w, id), later and 'delayed' or 'waiting')
  leave_active(w, id, job)
end

-- Writes. The last failure is not counted on the wire, because the original's `attempts` are the runs after
-- the first one.
local function wire_bury(w, id, job, failure)
  to_dead(w, id, failure.error or '', failure.trace)
  if job.kind == 'J' then
    note_attempts(w, id, job, math.min(failure.failures or job.failures,
      math.max(job.failures, job.attempts - 1)))
  end
  leave_active(w, id, job)
end

-- Writes. Of the documented statuses `failed` is the only one without another use. The error of a skipped
-- job is its result, as that of a dead one.
local function wire_drop(w, id, job, outcome, error)
  write_result(w, id, error_json(error or 'Ended: ' .. outcome, ''), 0)
  redis.call('SET', at_status(w, id), 'failed')
  leave_active(w, id, job)
end

-- Writes.
local function wire_set_aside(w, id, place, why)
  to_dead(w, id, 'SetAside: ' .. why, '')
  redis.call('LREM', w.at_waiting, 1, id)
  undelay(w, id)
  if redis.call('SISMEMBER', w.at_active, id) == 1 then leave_active(w, id, wire_read(w, id)) end
end

-- Writes. The job has all its runs again. The status last: until then the job counts as dead, and a copy of
-- the call does the rest.
local function wire_requeue(w, id, job)
  again_now(w, id, job.priority, true)
  note_attempts(w, id, job, 0)
  redis.call('LREM', w.at_dead, 0, id)
  redis.call('DEL', at_result(w, id))
  redis.call('SET', at_status(w, id), 'waiting')
end

-- Writes.
local function wire_run_now(w, id, job)
  again_now(w, id, job.priority, true)
  redis.call('SET', at_status(w, id), 'waiting')
  undelay(w, id)
end

local function wire_progress(w, id)
  local members = json_members(text_at(at_progress(w, id)) or '')
  local percent = members and json_value(members, 'percent')
  if type(percent) ~= 'number' then return nil end
  local message = type(json_value(members, 'message')) == 'string' and json_raw(members, 'message') or nil
  local at_ms = json_value(members, 'updatedAt')
  return percent, message, type(at_ms) == 'number' and math.floor(at_ms) or nil
end

-- Writes percent and message, the only progress fields of the format.
local function wire_noted(w, id, job, body)
  local read, progress = pcall(cjson.decode, '{' .. body)
  if not read then return end
  local percent = string.match(body, '"percent":([%d.eE+-]+)') or '0'
  local message = type(progress.message) == 'string' and ',"message":' .. json_quoted(progress.message) or ''
  redis.call('SET', at_progress(w, id), '{"percent":' .. percent .. message .. ',"updatedAt":'
    .. ms_text(w.now_ms) .. '}')
end
