-- Mosquito: reads of jobs, workers and schedules, and admin actions.
-- USES foreign/claim: own_words

-- Reads for display, and admin actions.
local function wire_looks(w, at)
  local keys, places, prefix, done = at.keys, at.places, at.prefix, at.prefix .. 'done'
  local places_of = { waiting = 'waiting', active = 'pending', delayed = 'scheduled', dead = 'dead' }

  -- Ids and times (ms): the end of the lease, the due time, or the time of death; 0 where the layout does not
  -- have it.
  function w.list(state, offset, limit, newest_first)
    local which, flat = places_of[state], {}
    if state == 'done' then
      return redis.call('ZRANGE', done, offset, offset + limit - 1,
        unpack(newest_first and { 'REV', 'WITHSCORES' } or { 'WITHSCORES' }))
    end
    if not which then return flat end
    local ids, scores = places.page(which, offset, limit, newest_first)
    local leased = state == 'active' and #ids > 0 and redis.call('ZMSCORE', prefix .. 'active', unpack(ids))
      or {}
    for i, id in ipairs(ids) do
      flat[2 * i - 1] = id
      flat[2 * i] = state == 'active' and (leased[i] or '0') or state == 'waiting' and '0' or scores[i] or '0'
    end
    return flat
  end

  function w.count(state)
    if state == 'done' then return redis.call('ZCARD', done) end
    return places_of[state] and places.size(places_of[state]) or 0
  end

  -- The time (ms) at which a job died: in the document layout its score, in the list layout from the engine's
  -- tombstone or the hash's expiry.
  local function died_ms(id)
    local score = at.layout == 'document' and tonumber(redis.call('ZSCORE', keys.dead, id))
    local ended = own_words(prefix .. 'run:' .. id, 'outcome', 'ended_ms')
    if score or ended[1] == 'buried' and tonumber(ended[2]) then return math.floor(score or ended[2]) end
    local left_ms = redis.call('PTTL', keys.job(id))
    return left_ms >= 0 and at.now_ms - math.max(at.dead_s * 1000 - left_ms, 0) or 0
  end

  function w.ended(id)
    local record = redis.pcall('GET', prefix .. 'result:' .. id)
    if type(record) == 'string' then
      return { state = 'finished', ended_ms = tonumber(string.match(record, '"ended_ms":(%d+)') or 0),
        record = record, error = '' }
    end
    if places.has('dead', id) then
      local error, ended_ms = own_words(prefix .. 'run:' .. id, 'error')[1] or '', died_ms(id)
      record = string.format('{"ok":false,"ended_ms":%d,"error":%s}', ended_ms, cjson.encode(error))
      return { state = 'dead', ended_ms = ended_ms, record = record, error = error }
    end
    local ended_ms, left_ms = tonumber(redis.call('ZSCORE', done, id)), redis.call('PTTL', keys.job(id))
    if not ended_ms and (left_ms < 0 or left_ms > math.max(at.success_s, 60) * 1000) then return nil end
    return { state = 'finished', ended_ms = ended_ms or at.now_ms, record = '', error = '' }
  end

  -- A hash does not say of which queue it is. One that is kept for longer than that of a finished run is of a
  -- dead one, which is not among the dead of this queue.
  function w.of_another(id) return not w.ended(id) end

  function w.requeue(id)
    redis.call('PERSIST', keys.job(id))
    redis.call('HSET', keys.job(id), 'retry_count', '0')
    if not places.has('waiting', id) then places.push('waiting', id) end
    places.drop('dead', id)
    at.list_queue()
    at.tell('enqueued', id)
  end

  function w.run_now(id)
    if not places.has('waiting', id) then places.push('waiting', id) end
    redis.call('ZREM', keys.scheduled, id)
    at.list_queue()
    at.tell('enqueued', id)
  end

  function w.remove(id, state)
    redis.call('DEL', keys.job(id), prefix .. 'result:' .. id)
    if places_of[state] then places.drop(places_of[state], id) else redis.call('ZREM', done, id) end
    at.tell('forgotten', id)
  end

  function w.purge(most)
    for _, which in ipairs({ 'waiting', 'pending', 'scheduled', 'dead' }) do
      local ids = places.page(which, 0, most)
      for _, id in ipairs(ids) do
        redis.call('DEL', keys.job(id))
        places.drop(which, id)
      end
      most = most - #ids
      if most <= 0 then return true end
    end
    for _, id in ipairs(redis.call('ZRANGE', done, 0, -1)) do
      redis.call('DEL', keys.job(id), prefix .. 'result:' .. id)
    end
    redis.call('ZREM', keys.queues, at.queue)
    redis.call('DEL', keys.pause, prefix .. 'foreign', prefix .. 'foreign_seen')
    return false
  end

  -- The format can only pause a whole queue.
  function w.pause(name, until_ms)
    if name ~= '*' then return end
    if until_ms > 0 then
      redis.call('SET', keys.pause, '1', 'PX', string.format('%d', math.max(until_ms - at.now_ms, 1)))
    else
      redis.call('SET', keys.pause, '1')
    end
  end
  function w.resume(name)
    if name == '*' then redis.call('DEL', keys.pause) end
  end
  function w.paused(name) return name == '*' and redis.call('EXISTS', keys.pause) == 1 end
end

-- The original's registry of runners: overseers and executors with their heartbeats, how many handlers each
-- may run at once, the coordinator's lock, and periodic jobs.
local function wire_registry(w, at)
  local root, hour_s = at.root, 3600
  local function fresh(key)
    if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
    return key
  end

  -- The setting by foreign clients for all runners or for one: the lower of `executor_count` and of the
  -- queue's `concurrency_limits`. A change becomes the engine's own setting; a later setting by the engine's
  -- users stays until the foreign one changes again.
  local function learn_count(field, suffix)
    local count = redis.pcall('HGET', root .. 'executor_count' .. suffix, 'count')
    local limit = redis.pcall('HGET', root .. 'concurrency_limits' .. suffix, at.queue)
    count, limit = tonumber(type(count) == 'string' and count or nil),
      tonumber(type(limit) == 'string' and limit or nil)
    local least = math.min(count or math.huge, limit or math.huge)
    local setting = least >= 1 and least <= 10000 and string.format('%d', least) or ''
    if (redis.call('HGET', at.prefix .. 'remote', field) or '') == setting then return false end
    redis.call('HSET', at.prefix .. 'remote', field, setting)
    if setting == '' then
      redis.call('HDEL', at.prefix .. 'settings', field)
    else
      redis.call('HSET', at.prefix .. 'settings', field, setting)
    end
    return true
  end
  local function learn_counts(worker)
    local changed = learn_count('c:*', '')
    if type(worker) == 'string' and learn_count('c:' .. worker, ':' .. worker) then changed = true end
    if not changed then return end
    local version = tonumber(redis.call('HGET', at.prefix .. 'settings', 'version') or 0)
    local news = at.prefix .. 'news:' .. string.format('%d', version)
    if redis.call('LLEN', news) == 0 then redis.call('RPUSH', news, '1') end
    redis.call('PEXPIREAT', news, string.format('%d', at.now_ms + 60000))
    redis.call('HSET', at.prefix .. 'settings', 'version', string.format('%d', version + 1))
  end

  local overseers = root .. 'overseers'
  -- The coordinator's locks of v2 and of HEAD. Only their holder promotes jobs and makes periodic ones; the
  -- original's coordinators pause meanwhile.
  local locks = { { key = root .. 'coordinator:football', ttl_s = 10 },
    { key = root .. 'coordinator:leadership_lock', ttl_s = 30 } }
  local function token_of(incarnation) return string.sub(incarnation, 1, 8) end
  local function overseer_key(incarnation) return root .. 'overseer:' .. incarnation end
  local function executor_key(incarnation) return root .. 'executor:' .. incarnation end

  -- Writes a heartbeat of a worker that is an overseer with one executor.
  function at.register(incarnation)
    if redis.call('TYPE', overseers).ok ~= 'zset' then redis.call('DEL', overseers) end
    if tonumber(redis.call('ZSCORE', overseers, incarnation) or nil) == at.now_s then return end
    redis.call('ZADD', overseers, at.now_s, incarnation)
    for key, executors in pairs({ [overseer_key(incarnation)] = incarnation,
        [executor_key(incarnation)] = false }) do
      redis.call('HSET', fresh(key), 'heartbeat', at.now_s)
      if executors then redis.call('HSET', key, 'executors', executors) end
      redis.call('EXPIRE', key, hour_s)
    end
  end

  function w.beat(incarnation, about, _, gone)
    if gone then
      if redis.call('TYPE', overseers).ok == 'zset' then redis.call('ZREM', overseers, incarnation) end
      redis.call('DEL', overseer_key(incarnation), executor_key(incarnation))
      for _, lock in ipairs(locks) do
        if redis.pcall('GET', lock.key) == token_of(incarnation) then redis.call('DEL', lock.key) end
      end
      return
    end
    at.register(incarnation)
    local executor = executor_key(incarnation)
    local fine, described = pcall(cjson.decode, about)
    local held = fine and type(described) == 'table' and described.jobs
    local first = type(held) == 'table' and held[1]
    if type(first) == 'string' then
      redis.call('HSET', executor, 'current_job', first, 'current_job_queue', at.queue)
    else
      redis.call('HDEL', executor, 'current_job', 'current_job_queue')
    end
    learn_counts(fine and type(described) == 'table' and described.name)
  end

  -- The overseers that are not of this engine, whose executors are others than themselves; at most 1,000.
  function w.workers()
    local found, known = {}, redis.pcall('ZRANGE', overseers, 0, 999, 'WITHSCORES')
    for place = 1, known.err and 0 or #known, 2 do
      local id, executors = known[place], redis.pcall('HGET', overseer_key(known[place]), 'executors')
      executors = type(executors) == 'string' and executors or ''
      if executors ~= id then
        local running, count = {}, 0
        for executor in string.gmatch(executors, '[^,%s]+') do
          local job = redis.pcall('HMGET', executor_key(executor), 'current_job', 'current_job_queue')
          count = count + 1
          if not job.err and job[1] and job[2] == at.queue then running[#running + 1] = job[1] end
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

  function w.lead(incarnation)
    if not at.coordinate then return end
    at.places.note_layout()
    local token = token_of(incarnation)
    for _, lock in ipairs(locks) do
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
  function w.ticked(name, at_ms, next_ms, id)
    local job = w.read(id)
    local key = fresh(root .. 'periodic_jobs:' .. class_of(job and job.name or name))
    redis.call('HSET', key, 'last_executed_at', math.floor(at_ms / 1000), 'pending_run_id', id)
    if next_ms > at_ms then redis.call('PEXPIRE', key, string.format('%d', 3 * (next_ms - at_ms))) end
  end
end
