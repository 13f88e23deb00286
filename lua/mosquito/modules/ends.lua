-- Mosquito: how jobs end, its rates, and strays.

-- The original's rate limiter: `rate_limit:<key>` holds the begin of a window (s) and how much ran in it. The limit itself is no part of the
-- wire: it is one that the queue was given, for the job's key or for its name. Only claims ask, so the look and the count are one step.
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
  -- The window that is open: its key, its begin, what ran in it (nil: a new one begins), the limit and its length.
  local function window_of(job)
    local key, rate, per_ms = limit_of(job)
    if not key then return nil end
    local was = redis.pcall('HMGET', key, 'window_start', 'run_count')
    local start_s, ran = not was.err and tonumber(was[1]), not was.err and tonumber(was[2]) or 0
    -- One that a clock which stepped back has left ahead counts as over (rule 10).
    if not start_s or start_s * 1000 + per_ms < now_ms or start_s * 1000 > now_ms + 1000 then return key, nil, 0, rate, per_ms end
    return key, start_s, ran, rate, per_ms
  end
  -- Until when a job is kept back by its rate; nil: it may run, and the other candidates of this claim find its place taken.
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

-- How runs end, and how delayed ones come back: all of it writes, with the lease held. Entries are added before others are taken away, so that
-- what is cut off in between is there twice and not gone; a lease covers the ends, and candidates pass by what is there twice.
local function wire_ends(w, at)
  local keys, places, prefix = at.keys, at.places, at.prefix
  -- Out of the hand: what HEAD's overseers would take for an orphan otherwise goes with it.
  local function leave(id)
    redis.call('HDEL', keys.job(id), 'overseer_id', 'started_at')
    return places.drop('pending', id)
  end
  -- Nothing is left of a finished run but its hash, for a moment; where something would wait for it, see `ended`.
  local function expire(id, seconds)
    if seconds > 0 then redis.call('EXPIRE', keys.job(id), seconds) else redis.call('DEL', keys.job(id)) end
  end

  function w.back(id, _, front)
    local known = redis.call('EXISTS', keys.job(id)) == 1
    local held = leave(id) > 0
    -- Without an entry in `pending` an earlier copy may have brought it back, or somebody else did.
    if known and (held or not w.place(id)) then places.push('waiting', id, front) end
    at.list_queue()
  end

  -- How long the last 100 runs of a name took: as the handler's worker has measured, or since the run has started.
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
      local record = string.format('{"ok":true,"ended_ms":%d,"fence":0,"took_ms":%d,"value":%s}', at.now_ms, took_ms or 0, value)
      if ttl_ms > 0 then redis.call('SET', prefix .. 'result:' .. id, record, 'PX', string.format('%d', ttl_ms)) end
    end
    if not redo then note_duration(id, job, value and took_ms) end
    redis.call('HDEL', keys.job(id), 'overseer_id', 'started_at')
    expire(id, at.success_s)
    -- The last of them, for people: the original keeps nothing of what has finished.
    redis.call('ZADD', prefix .. 'done', string.format('%d', at.now_ms), id)
    if redis.call('ZCARD', prefix .. 'done') > 1100 then redis.call('ZREMRANGEBYRANK', prefix .. 'done', 0, -1001) end
    places.drop('pending', id)
    at.tell('forgotten', id)
  end

  function w.again(id, _, failure, redo)
    -- The rest of it was cut off, and the job has come back since.
    if redo and not places.has('pending', id) and w.place(id) then return end
    redis.call('ZADD', keys.scheduled, string.format('%d', failure.due_ms), id)
    redis.call('HSET', keys.job(id), 'retry_count', string.format('%d', failure.failures))
    leave(id)
    at.list_queue()
    at.tell('rescheduled', id, failure.due_ms)
  end

  -- The list of the dead has no bound and outlives their hashes: each burial looks at the oldest, and lets go of those that are gone.
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
    redis.call('HSET', keys.job(id), 'retry_count', string.format('%d', failure.failures))
    leave(id)
    at.tell('banished', id)
  end

  function w.drop(id)
    redis.call('DEL', keys.job(id))
    places.drop('pending', id)
    at.tell('forgotten', id)
  end

  -- A candidate that cannot run. What has a hash goes to the dead; of what has none an entry of ours tells why it is gone, at most 10,000 of them.
  function w.set_aside(id, place, why)
    if redis.call('HLEN', prefix .. 'aside') < 10000 then redis.call('HSET', prefix .. 'aside', id, why) end
    local hash = redis.call('TYPE', keys.job(id)).ok == 'hash' and redis.call('HEXISTS', keys.job(id), 'type') == 1
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
    return redis.call('ZRANGE', keys.scheduled, '-inf', string.format('%d', at.now_ms), 'BYSCORE', 'LIMIT', 0, most)
  end

  function w.due_at(id) return tonumber(redis.call('ZSCORE', keys.scheduled, id)) end

  function w.next_due_ms()
    local due_ms = tonumber(redis.call('ZRANGE', keys.scheduled, 0, 0, 'WITHSCORES')[2])
    if not due_ms or due_ms ~= due_ms or due_ms > 9007199254740992 then return nil end
    return math.max(math.floor(due_ms), 0)
  end

  -- False for one whose hash is gone: its id is taken out, as the original does.
  function w.promote(id)
    local known = redis.call('EXISTS', keys.job(id)) == 1
    -- The end that was pushed last: a copy that was cut off has brought it there.
    local last = places.page('waiting', 0, 1, true)[1]
    if known and last ~= id then places.push('waiting', id) end
    redis.call('ZREM', keys.scheduled, id)
    if known then at.list_queue() end
    return known
  end
end

-- Jobs in hand of runners that are gone. HEAD's overseers name themselves in the hash and beat in `overseers`, every 20 s: one that was not heard
-- for 100 s is dead, by their own rule. v2 says nothing: its entries come back only after `adopt_after_ms`, where that is set. Ids without a
-- hash can never run: they leave `pending`.
local function wire_strays(w, at)
  local keys, places, prefix = at.keys, at.places, at.prefix
  -- Since when an entry of nobody is known to be there: for a list the first look tells.
  local function since(id)
    local known = redis.call('ZSCORE', prefix .. 'foreign', id)
    if not known then redis.call('ZADD', prefix .. 'foreign', string.format('%d', at.now_ms), id) end
    return tonumber(known or at.now_ms)
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

  -- At most 200 entries are looked at, from where the last look ended: those of ours may be many.
  function w.strays(most)
    local found, mark = {}, redis.call('HGET', prefix .. 'sweep', 'strays_from')
    local from = tonumber(mark or 0)
    local ids = places.page('pending', from, 200)
    local leased = #ids > 0 and redis.call('ZMSCORE', prefix .. 'active', unpack(ids)) or {}
    for i, id in ipairs(ids) do
      if #found < most and not leased[i] and is_stray(id) then found[#found + 1] = id end
    end
    -- A page with strays is looked at again: each must be seen twice.
    local to = #found > 0 and from or #ids == 200 and from + 200 or 0
    if to ~= from then redis.call('HSET', prefix .. 'sweep', 'strays_from', to) end
    -- What has stood there for a day longer than it may is gone: had it been in `pending`, it would have come back.
    if to == 0 and at.adopt_ms > 0 then
      redis.call('ZREMRANGEBYSCORE', prefix .. 'foreign', '-inf', string.format('%d', at.now_ms - at.adopt_ms - 86400000))
    end
    return found
  end
end
