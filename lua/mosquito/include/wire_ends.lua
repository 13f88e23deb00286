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
