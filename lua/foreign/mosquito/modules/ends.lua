-- Mosquito: how jobs end, its rate limiter, and strays.

-- The original's rate limiter: `rate_limit:<key>` holds the start of a window (s) and how many jobs ran in
-- it. The limit itself is not on the wire: it is the queue's own, for the job's key or for its name. Only
-- claims use it, so reading and counting are one step.
local function wire_rates(keys, prefix, now_ms)
  local rates, limits, reserved = {}, nil, {}
  local function limit_of(job)
    if not limits then
      limits = {}
      local flat = redis.call('HGETALL', prefix .. 'limits')
      for at = 1, #flat, 2 do limits[flat[at]] = flat[at + 1] end
    end
    local definition = job.key and (limits['k:' .. job.key] or limits['k:*']) or limits['n:' .. job.name]
    local rate, per_ms = string.match(definition or '', '^%d+ (%d+) (%d+) %a+$')
    if not rate or rate == '0' then return nil end
    return keys.rate(job.key or job.name), tonumber(rate), tonumber(per_ms)
  end
  -- The open window: its key, its start, how many ran in it (start nil: a new one begins), the limit and its
  -- length.
  local function window_of(job)
    local key, rate, per_ms = limit_of(job)
    if not key then return nil end
    local was = redis.pcall('HMGET', key, 'window_start', 'run_count')
    local start_s, ran = not was.err and tonumber(was[1]), not was.err and tonumber(was[2]) or 0
    -- A window that lies ahead of now because the clock stepped back counts as over (rule 10).
    if not start_s or start_s * 1000 + per_ms < now_ms or start_s * 1000 > now_ms + 1000 then
      return key, nil, 0, rate, per_ms
    end
    return key, start_s, ran, rate, per_ms
  end
  -- The time (ms) until which the rate delays a job; nil: it may run, and its place counts for the other
  -- candidates of this claim.
  function rates.kept_until_ms(job)
    local key, start_s, ran, rate, per_ms = window_of(job)
    if not key then return nil end
    local cost, before = math.min(job.cost or 1, rate), reserved[key] or 0
    if ran + before + cost <= rate then
      reserved[key] = before + cost
      return nil
    end
    return (start_s or math.floor(now_ms / 1000)) * 1000 + per_ms + 1
  end
  function rates.count(job)
    local key, start_s, _, rate = window_of(job)
    if not key then return end
    if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
    if not start_s then redis.call('HSET', key, 'window_start', math.floor(now_ms / 1000), 'run_count', 0) end
    redis.call('HINCRBY', key, 'run_count', math.min(job.cost or 1, rate))
  end
  return rates
end

-- How runs end, and how delayed jobs become waiting ones: everything here writes, while the lease is held.
-- Entries are added before others are removed. So after a call that was cut off a job is in two places rather
-- than in none. A lease protects such a job while it ends, and claims pass over second entries.
local function wire_ends(w, at)
  local keys, places, prefix = at.keys, at.places, at.prefix
  -- Take a job out of `pending`, and delete what is known of its runner: the fields by which overseers of
  -- HEAD would count it as an orphan, and since when it counts as a foreign one (see `strays`).
  local function leave(id)
    if at.adopt_ms > 0 then redis.call('ZREM', prefix .. 'foreign', id) end
    redis.call('HDEL', keys.job(id), 'overseer_id', 'started_at')
    return places.drop('pending', id)
  end
  -- Of a finished run only its hash is left, for a short time; see `ended` for callers that wait for it.
  local function expire(id, seconds)
    if seconds > 0 then redis.call('EXPIRE', keys.job(id), seconds) else redis.call('DEL', keys.job(id)) end
  end

  function w.back(id, _, front)
    local known = redis.call('EXISTS', keys.job(id)) == 1
    local held = leave(id) > 0
    -- Without an entry in `pending` an earlier copy or a foreign client may have moved it back.
    if known and (held or not w.place(id)) then places.push('waiting', id, front) end
    at.list_queue()
  end

  -- Record how long the last 100 runs of a name took: as the worker has measured, else the time since the run
  -- started.
  local function note_duration(id, job, took_ms)
    local started_ms = not took_ms and tonumber(redis.call('HGET', keys.job(id), 'started_at') or nil)
    took_ms = took_ms or started_ms and math.max(at.now_ms - started_ms, 0)
    if not took_ms or job.kind ~= 'J' then return end
    local key = at.root .. 'job:' .. job.name .. ':duration'
    if redis.call('TYPE', key).ok ~= 'list' then redis.call('DEL', key) end
    redis.call('LPUSH', key, string.format('%d', took_ms))
    redis.call('LTRIM', key, 0, 99)
    redis.call('EXPIRE', key, 2592000)
  end

  function w.done(id, job, value, took_ms, redo)
    if value then
      local ttl_ms = job.result_ttl_ms or 3600000
      local record = string.format('{"ok":true,"ended_ms":%d,"fence":0,"took_ms":%d,"value":%s}', at.now_ms,
        took_ms or 0, value)
      if ttl_ms > 0 then
        redis.call('SET', prefix .. 'result:' .. id, record, 'PX', string.format('%d', ttl_ms))
      end
    end
    if not redo then note_duration(id, job, value and took_ms) end
    redis.call('HDEL', keys.job(id), 'overseer_id', 'started_at')
    expire(id, at.success_s)
    -- The newest ones are listed for display: the original keeps no list of finished jobs.
    redis.call('ZADD', prefix .. 'done', string.format('%d', at.now_ms), id)
    if redis.call('ZCARD', prefix .. 'done') > 1100 then
      redis.call('ZREMRANGEBYRANK', prefix .. 'done', 0, -1001)
    end
    places.drop('pending', id)
    at.tell('forgotten', id)
  end

  -- Creates no hash: that of a job which a foreign runner has ended meanwhile may have expired, and a new one
  -- would stay for ever.
  local function note_failures(id, failure)
    if redis.call('EXISTS', keys.job(id)) == 0 then return end
    redis.call('HSET', keys.job(id), 'retry_count', string.format('%d', failure.failures))
  end

  function w.again(id, _, failure, redo)
    -- An earlier copy was cut off, and the job was moved back since.
    if redo and not places.has('pending', id) and w.place(id) then return end
    redis.call('ZADD', keys.scheduled, string.format('%d', failure.due_ms), id)
    note_failures(id, failure)
    leave(id)
    at.list_queue()
    at.tell('rescheduled', id, failure.due_ms)
  end

  -- The list of the dead has no bound, and its entries outlive their hashes: each burial checks the oldest
  -- and removes those without a hash.
  local function bury(id)
    for _ = 1, 3 do
      local oldest = places.page('dead', 0, 1)[1]
      if not oldest or redis.call('EXISTS', keys.job(oldest)) == 1 then break end
      places.drop('dead', oldest)
    end
    places.drop('dead', id)
    places.push('dead', id)
    expire(id, math.max(at.dead_s, 1))
  end

  function w.bury(id, _, failure)
    bury(id)
    note_failures(id, failure)
    leave(id)
    at.tell('banished', id)
  end

  function w.drop(id)
    redis.call('DEL', keys.job(id))
    places.drop('pending', id)
    at.tell('forgotten', id)
  end

  -- Remove a candidate that cannot run. If it has a hash, it goes to the dead; else an entry of the engine's
  -- own records why it was removed, at most 10,000 of them.
  function w.set_aside(id, place, why)
    if redis.call('HLEN', prefix .. 'aside') < 10000 then redis.call('HSET', prefix .. 'aside', id, why) end
    local hash = redis.call('TYPE', keys.job(id)).ok == 'hash'
      and redis.call('HEXISTS', keys.job(id), 'type') == 1
      and redis.call('HEXISTS', keys.job(id), 'enqueue_time') == 1 and redis.call('PTTL', keys.job(id)) < 0
    if hash then
      redis.call('HDEL', keys.job(id), 'overseer_id', 'started_at')
      bury(id)
    end
    if place == 'waiting' then
      places.drop_next(id)
    else
      for _, which in ipairs({ 'pending', 'waiting', 'scheduled' }) do places.drop(which, id) end
    end
    if hash then at.tell('banished', id) end
  end

  function w.due(most)
    return redis.call('ZRANGE', keys.scheduled, '-inf', string.format('%d', at.now_ms), 'BYSCORE', 'LIMIT', 0,
      most)
  end

  function w.due_at(id) return tonumber(redis.call('ZSCORE', keys.scheduled, id)) end

  function w.next_due_ms()
    local due_ms = tonumber(redis.call('ZRANGE', keys.scheduled, 0, 0, 'WITHSCORES')[2])
    if not due_ms or due_ms ~= due_ms or due_ms > 9007199254740992 then return nil end
    return math.max(math.floor(due_ms), 0)
  end

  -- Returns false if the hash is gone: then the id is removed, as the original does.
  function w.promote(id)
    local known = redis.call('EXISTS', keys.job(id)) == 1
    -- The entry that was pushed last: a copy that was cut off may have pushed this job.
    local last = places.page('waiting', 0, 1, true)[1]
    if known and last ~= id then places.push('waiting', id) end
    redis.call('ZREM', keys.scheduled, id)
    if known then at.list_queue() end
    return known
  end
end

-- Active jobs whose runners are gone. Overseers of HEAD write their id into the hash, and a heartbeat into
-- `overseers` every 20 s. By their own rule one without a heartbeat for 100 s is dead. v2 writes neither: its
-- entries come back only after `adopt_after_ms`, where that is set. Ids without a hash can never run: they
-- are removed from `pending`.
local function wire_strays(w, at)
  local keys, places, prefix = at.keys, at.places, at.prefix
  -- `foreign`: entries without a known runner by the time (ms) of the pass that first saw them;
  -- `foreign_seen`: those of this pass.
  local foreign, foreign_seen = prefix .. 'foreign', prefix .. 'foreign_seen'
  local function since(id)
    redis.call('ZADD', foreign, 'NX', string.format('%d', at.now_ms), id)
    redis.call('SADD', foreign_seen, id)
    return tonumber(redis.call('ZSCORE', foreign, id))
  end
  local function is_stray(id)
    local run = redis.pcall('HMGET', keys.job(id), 'type', 'overseer_id')
    if run.err or not run[1] then return true end
    if run[2] then
      local heard_s = redis.pcall('ZSCORE', at.root .. 'overseers', run[2])
      return not tonumber(type(heard_s) == 'string' and heard_s or nil) or tonumber(heard_s) < at.now_s - 100
    end
    return at.adopt_ms > 0 and since(id) + at.adopt_ms <= at.now_ms
  end

  -- At most 200 entries are read, from where the last call ended, because many of them may be this engine's.
  function w.strays(most)
    local found, mark = {}, redis.call('HGET', prefix .. 'sweep', 'strays_from')
    local from = tonumber(mark or 0)
    local ids = places.page('pending', from, 200)
    local leased = #ids > 0 and redis.call('ZMSCORE', prefix .. 'active', unpack(ids)) or {}
    for i, id in ipairs(ids) do
      if #found < most and not leased[i] and is_stray(id) then found[#found + 1] = id end
    end
    -- A page with strays is read again by the next call, because each stray must be seen twice.
    local to = #found > 0 and from or #ids == 200 and from + 200 or 0
    if to ~= from then redis.call('HSET', prefix .. 'sweep', 'strays_from', to) end
    -- An entry that has left `pending` is forgotten: if its job comes back, a new run has begun, and so has
    -- its time.
    if #found == 0 and to == 0 and at.adopt_ms > 0 then
      redis.call('ZINTERSTORE', foreign, 2, foreign, foreign_seen, 'WEIGHTS', 1, 0)
      redis.call('DEL', foreign_seen)
    end
    return found
  end
end
