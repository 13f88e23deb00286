-- What the original keeps of its runners: overseers and executors with their heartbeats, how many handlers each may run at once, the
-- coordinator's lock, and periodic jobs.
local function wire_registry(w, at)
  local root, hour_s = at.root, 3600
  local function fresh(key)
    if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
    return key
  end

  -- What somebody of theirs has set for all runners or for one: the least of `executor_count` and of the queue's `concurrency_limits`. A change
  -- becomes our own setting; what our side has set since stays until theirs changes again.
  local function learn_count(field, suffix)
    local count = redis.pcall('HGET', root .. 'executor_count' .. suffix, 'count')
    local limit = redis.pcall('HGET', root .. 'concurrency_limits' .. suffix, at.queue)
    count, limit = tonumber(type(count) == 'string' and count or nil), tonumber(type(limit) == 'string' and limit or nil)
    local least = math.min(count or math.huge, limit or math.huge)
    local told = least >= 1 and least <= 10000 and string.format('%d', least) or ''
    if (redis.call('HGET', at.prefix .. 'remote', field) or '') == told then return false end
    redis.call('HSET', at.prefix .. 'remote', field, told)
    if told == '' then redis.call('HDEL', at.prefix .. 'settings', field) else redis.call('HSET', at.prefix .. 'settings', field, told) end
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

  function w.beat(incarnation, about, _, gone)
    local overseers, overseer, executor = root .. 'overseers', root .. 'overseer:' .. incarnation, root .. 'executor:' .. incarnation
    if redis.call('TYPE', overseers).ok ~= 'zset' then redis.call('DEL', overseers) end
    if gone then
      redis.call('ZREM', overseers, incarnation)
      redis.call('DEL', overseer, executor)
      return
    end
    redis.call('ZADD', overseers, at.now_s, incarnation)
    redis.call('HSET', fresh(overseer), 'heartbeat', at.now_s, 'executors', incarnation)
    redis.call('EXPIRE', overseer, hour_s)
    local fine, told = pcall(cjson.decode, about)
    local held = fine and type(told) == 'table' and told.jobs
    local first = type(held) == 'table' and held[1]
    redis.call('HSET', fresh(executor), 'heartbeat', at.now_s)
    if type(first) == 'string' then
      redis.call('HSET', executor, 'current_job', first, 'current_job_queue', at.queue)
    else
      redis.call('HDEL', executor, 'current_job', 'current_job_queue')
    end
    redis.call('EXPIRE', executor, hour_s)
    learn_counts(fine and type(told) == 'table' and told.name)
  end

  -- Both generations' lock. Who holds it is the only one to promote and to make periodic jobs: the original's coordinators rest meanwhile.
  function w.lead(incarnation)
    if not at.coordinate then return end
    for key, ttl_s in pairs({ ['coordinator:football'] = 10, ['coordinator:leadership_lock'] = 30 }) do
      local lock, token = root .. key, string.sub(incarnation, 1, 8)
      if not redis.call('SET', lock, token, 'NX', 'EX', ttl_s) and redis.pcall('GET', lock) == token then redis.call('EXPIRE', lock, ttl_s) end
    end
  end

  -- `tick_job` is the class TickJob, `held_out::spaced_job` HeldOut::SpacedJob.
  local function class_of(name)
    local class = string.gsub(string.gsub(name, '_(%l)', string.upper), '^%l', string.upper)
    return (string.gsub(class, ':(%l)', function(letter) return ':' .. string.upper(letter) end))
  end
  -- The run that is pending keeps a second one out, and what is not heard of for three intervals is forgotten.
  function w.ticked(name, at_ms, next_ms, id)
    local job = w.read(id)
    local key = fresh(root .. 'periodic_jobs:' .. class_of(job and job.name or name))
    redis.call('HSET', key, 'last_executed_at', math.floor(at_ms / 1000), 'pending_run_id', id)
    if next_ms > at_ms then redis.call('PEXPIRE', key, string.format('%d', 3 * (next_ms - at_ms))) end
  end
end
