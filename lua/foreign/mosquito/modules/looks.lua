-- Mosquito: reads of jobs, workers and schedules, and admin actions.
-- USES foreign/claim: own_words
--      mosquito/wire: at_job, list_queue, note_layout, place_drop, place_has, place_page, place_push,
--        place_size, tell, wire_read

-- Reads for display, and admin actions.

-- Ids and times (ms): the end of the lease, the due time, or the time of death; 0 where the layout does not
-- have it.
local function wire_list(w, state, offset, limit, newest_first)
  local which, flat = w.place_of[state], {}
  if state == 'done' then
    return redis.call('ZRANGE', w.keys.done, offset, offset + limit - 1,
      unpack(newest_first and { 'REV', 'WITHSCORES' } or { 'WITHSCORES' }))
  end
  if not which then return flat end
  local ids, scores = place_page(w, which, offset, limit, newest_first)
  local leased = state == 'active' and #ids > 0 and redis.call('ZMSCORE', w.prefix .. 'active', unpack(ids))
    or {}
  for i, id in ipairs(ids) do
    flat[2 * i - 1] = id
    flat[2 * i] = state == 'active' and (leased[i] or '0') or state == 'waiting' and '0' or scores[i] or '0'
  end
  return flat
end

local function wire_count(w, state)
  if state == 'done' then return redis.call('ZCARD', w.keys.done) end
  return w.place_of[state] and place_size(w, w.place_of[state]) or 0
end

-- The time (ms) at which a job died: in the document layout its score, in the list layout from the engine's
-- tombstone or the hash's expiry.
local function died_ms(w, id)
  local score = w.layout == 'document' and tonumber(redis.call('ZSCORE', w.keys.dead, id))
  local ended = own_words(w.prefix .. 'run:' .. id, 'outcome', 'ended_ms')
  if score or ended[1] == 'buried' and tonumber(ended[2]) then return math.floor(score or ended[2]) end
  local left_ms = redis.call('PTTL', at_job(w, id))
  return left_ms >= 0 and w.now_ms - math.max(w.dead_s * 1000 - left_ms, 0) or 0
end

local function wire_ended(w, id)
  local record = redis.pcall('GET', w.prefix .. 'result:' .. id)
  if type(record) == 'string' then
    return { state = 'finished', ended_ms = tonumber(string.match(record, '"ended_ms":(%d+)') or 0),
      record = record, error = '' }
  end
  if place_has(w, 'dead', id) then
    local error, ended_ms = own_words(w.prefix .. 'run:' .. id, 'error')[1] or '', died_ms(w, id)
    record = string.format('{"ok":false,"ended_ms":%d,"error":%s}', ended_ms, cjson.encode(error))
    return { state = 'dead', ended_ms = ended_ms, record = record, error = error }
  end
  local ended_ms, left_ms = tonumber(redis.call('ZSCORE', w.keys.done, id)), redis.call('PTTL', at_job(w, id))
  if not ended_ms and (left_ms < 0 or left_ms > math.max(w.success_s, 60) * 1000) then return nil end
  return { state = 'finished', ended_ms = ended_ms or w.now_ms, record = '', error = '' }
end

-- A hash does not say of which queue it is. One that is kept for longer than that of a finished run is of a
-- dead one, which is not among the dead of this queue.
local function wire_of_another(w, id)
  return not wire_ended(w, id)
end

local function wire_requeue(w, id)
  redis.call('PERSIST', at_job(w, id))
  redis.call('HSET', at_job(w, id), 'retry_count', '0')
  if not place_has(w, 'waiting', id) then place_push(w, 'waiting', id) end
  place_drop(w, 'dead', id)
  list_queue(w)
  tell(w, 'enqueued', id)
end

local function wire_run_now(w, id)
  if not place_has(w, 'waiting', id) then place_push(w, 'waiting', id) end
  redis.call('ZREM', w.keys.scheduled, id)
  list_queue(w)
  tell(w, 'enqueued', id)
end

local function wire_remove(w, id, state)
  redis.call('DEL', at_job(w, id), w.prefix .. 'result:' .. id)
  if w.place_of[state] then place_drop(w, w.place_of[state], id) else redis.call('ZREM', w.keys.done, id) end
  tell(w, 'forgotten', id)
end

local function wire_purge(w, most)
  for _, which in ipairs({ 'waiting', 'pending', 'scheduled', 'dead' }) do
    local ids = place_page(w, which, 0, most)
    for _, id in ipairs(ids) do
      redis.call('DEL', at_job(w, id))
      place_drop(w, which, id)
    end
    most = most - #ids
    if most <= 0 then return true end
  end
  for _, id in ipairs(redis.call('ZRANGE', w.keys.done, 0, -1)) do
    redis.call('DEL', at_job(w, id), w.prefix .. 'result:' .. id)
  end
  redis.call('ZREM', w.keys.queues, w.queue)
  redis.call('DEL', w.keys.pause, w.keys.foreign, w.keys.foreign_seen)
  return false
end

-- The format can only pause a whole queue.
local function wire_pause(w, name, until_ms)
  if name ~= '*' then return end
  if until_ms > 0 then
    redis.call('SET', w.keys.pause, '1', 'PX', string.format('%d', math.max(until_ms - w.now_ms, 1)))
  else
    redis.call('SET', w.keys.pause, '1')
  end
end

local function wire_resume(w, name)
  if name == '*' then redis.call('DEL', w.keys.pause) end
end

local function wire_paused(w, name)
  return name == '*' and redis.call('EXISTS', w.keys.pause) == 1
end

-- The original's registry of runners: overseers and executors with their heartbeats, how many handlers each
-- may run at once, the coordinator's lock, and periodic jobs.

local function fresh_hash(key)
  if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
  return key
end

-- The setting by foreign clients for all runners or for one: the lower of `executor_count` and of the
-- queue's `concurrency_limits`. A change becomes the engine's own setting; a later setting by the engine's
-- users stays until the foreign one changes again.
local function learn_count(w, field, suffix)
  local count = redis.pcall('HGET', w.root .. 'executor_count' .. suffix, 'count')
  local limit = redis.pcall('HGET', w.root .. 'concurrency_limits' .. suffix, w.queue)
  count, limit = tonumber(type(count) == 'string' and count or nil),
    tonumber(type(limit) == 'string' and limit or nil)
  local least = math.min(count or math.huge, limit or math.huge)
  local setting = least >= 1 and least <= 10000 and string.format('%d', least) or ''
  if (redis.call('HGET', w.prefix .. 'remote', field) or '') == setting then return false end
  redis.call('HSET', w.prefix .. 'remote', field, setting)
  if setting == '' then
    redis.call('HDEL', w.prefix .. 'settings', field)
  else
    redis.call('HSET', w.prefix .. 'settings', field, setting)
  end
  return true
end

local function learn_counts(w, worker)
  local changed = learn_count(w, 'c:*', '')
  if type(worker) == 'string' and learn_count(w, 'c:' .. worker, ':' .. worker) then changed = true end
  if not changed then return end
  local version = tonumber(redis.call('HGET', w.prefix .. 'settings', 'version') or 0)
  local news = w.prefix .. 'news:' .. string.format('%d', version)
  if redis.call('LLEN', news) == 0 then redis.call('RPUSH', news, '1') end
  redis.call('PEXPIREAT', news, string.format('%d', w.now_ms + 60000))
  redis.call('HSET', w.prefix .. 'settings', 'version', string.format('%d', version + 1))
end

local function lock_token(incarnation)
  return string.sub(incarnation, 1, 8)
end

local function at_overseer(w, incarnation)
  return w.root .. 'overseer:' .. incarnation
end

local function at_executor(w, incarnation)
  return w.root .. 'executor:' .. incarnation
end

-- Writes a heartbeat of a worker that is an overseer with one executor.
local function register_worker(w, incarnation)
  if redis.call('TYPE', w.keys.overseers).ok ~= 'zset' then redis.call('DEL', w.keys.overseers) end
  if tonumber(redis.call('ZSCORE', w.keys.overseers, incarnation) or nil) == w.now_s then return end
  redis.call('ZADD', w.keys.overseers, w.now_s, incarnation)
  for key, executors in pairs({ [at_overseer(w, incarnation)] = incarnation,
      [at_executor(w, incarnation)] = false }) do
    redis.call('HSET', fresh_hash(key), 'heartbeat', w.now_s)
    if executors then redis.call('HSET', key, 'executors', executors) end
    redis.call('EXPIRE', key, 3600)
  end
end

local function wire_beat(w, incarnation, about, _, gone)
  if gone then
    if redis.call('TYPE', w.keys.overseers).ok == 'zset' then
      redis.call('ZREM', w.keys.overseers, incarnation)
    end
    redis.call('DEL', at_overseer(w, incarnation), at_executor(w, incarnation))
    for _, lock in ipairs(w.locks) do
      if redis.pcall('GET', lock.key) == lock_token(incarnation) then redis.call('DEL', lock.key) end
    end
    return
  end
  register_worker(w, incarnation)
  local executor = at_executor(w, incarnation)
  local fine, described = pcall(cjson.decode, about)
  local held = fine and type(described) == 'table' and described.jobs
  local first = type(held) == 'table' and held[1]
  if type(first) == 'string' then
    redis.call('HSET', executor, 'current_job', first, 'current_job_queue', w.queue)
  else
    redis.call('HDEL', executor, 'current_job', 'current_job_queue')
  end
  learn_counts(w, fine and type(described) == 'table' and described.name)
end

-- The overseers that are not of this engine, whose executors are others than themselves; at most 1,000.
local function wire_workers(w)
  local found, known = {}, redis.pcall('ZRANGE', w.keys.overseers, 0, 999, 'WITHSCORES')
  for place = 1, known.err and 0 or #known, 2 do
    local id, executors = known[place], redis.pcall('HGET', at_overseer(w, known[place]), 'executors')
    executors = type(executors) == 'string' and executors or ''
    if executors ~= id then
      local running, count = {}, 0
      for executor in string.gmatch(executors, '[^,%s]+') do
        local job = redis.pcall('HMGET', at_executor(w, executor), 'current_job', 'current_job_queue')
        count = count + 1
        if not job.err and job[1] and job[2] == w.queue then running[#running + 1] = job[1] end
      end
      local jobs = #running > 0 and cjson.encode(running) or '[]'
      found[#found + 1] = { name = id, heard_ms = math.floor(tonumber(known[place + 1]) or 0) * 1000,
        ttl_ms = 100000,
        about = string.format('{"name":%s,"concurrency":%d,"in_hand":%d,"jobs":%s}', cjson.encode(id),
        count, #running, jobs) }
    end
  end
  return found
end

local function wire_lead(w, incarnation)
  if not w.coordinate then return end
  note_layout(w)
  local token = lock_token(incarnation)
  for _, lock in ipairs(w.locks) do
    if not redis.call('SET', lock.key, token, 'NX', 'EX', lock.ttl_s)
        and redis.pcall('GET', lock.key) == token then
      redis.call('EXPIRE', lock.key, lock.ttl_s)
    end
  end
end

-- `tick_job` is the class TickJob, `held_out::spaced_job` HeldOut::SpacedJob.
local function class_of(name)
  local class = string.gsub(string.gsub(name, '_(%l)', string.upper), '^%l', string.upper)
  return (string.gsub(class, ':(%l)', function(letter) return ':' .. string.upper(letter) end))
end

-- `pending_run_id` prevents a second run while the first is pending; a state that is not renewed for three
-- intervals expires.
local function wire_ticked(w, name, at_ms, next_ms, id)
  local job = wire_read(w, id)
  local key = fresh_hash(w.root .. 'periodic_jobs:' .. class_of(job and job.name or name))
  redis.call('HSET', key, 'last_executed_at', math.floor(at_ms / 1000), 'pending_run_id', id)
  if next_ms > at_ms then redis.call('PEXPIRE', key, string.format('%d', 3 * (next_ms - at_ms))) end
end
