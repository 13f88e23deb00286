-- Mosquito: how jobs end, its rate limiter, and strays.
-- USES mosquito/wire: at_job, at_rate, list_queue, place_drop, place_drop_next, place_has, place_page,
--        place_push, tell, wire_place

-- The original's rate limiter: `rate_limit:<key>` holds the start of a window (s) and how many jobs ran in
-- it. The limit itself is not on the wire: it is the queue's own, for the job's key or for its name. Only
-- claims use it, so reading and counting are one step.
-- The open window: its key (nil: no limit), its start, how many ran in it (start nil: a new one begins), the
-- limit and its length.
local function rate_window(w, job)
  if not w.limits then
    w.limits = {}
    local flat = redis.call('HGETALL', w.prefix .. 'limits')
    for at = 1, #flat, 2 do w.limits[flat[at]] = flat[at + 1] end
  end
  local definition = job.key and (w.limits['k:' .. job.key] or w.limits['k:*']) or w.limits['n:' .. job.name]
  local rate, per_ms = string.match(definition or '', '^%d+ (%d+) (%d+) %a+$')
  if not rate or rate == '0' then return nil end
  rate, per_ms = tonumber(rate), tonumber(per_ms)
  local key = at_rate(w, job.key or job.name)
  local was = redis.pcall('HMGET', key, 'window_start', 'run_count')
  local start_s, ran = not was.err and tonumber(was[1]), not was.err and tonumber(was[2]) or 0
  -- A window that lies ahead of now because the clock stepped back counts as over (rule 10).
  if not start_s or start_s * 1000 + per_ms < w.now_ms or start_s * 1000 > w.now_ms + 1000 then
    return key, nil, 0, rate, per_ms
  end
  return key, start_s, ran, rate, per_ms
end

-- The time (ms) until which the rate delays a job; nil: it may run, and its place counts for the other
-- candidates of this claim.
local function rate_ends_ms(w, job)
  local key, start_s, ran, rate, per_ms = rate_window(w, job)
  if not key then return nil end
  local cost, before = math.min(job.cost or 1, rate), w.reserved[key] or 0
  if ran + before + cost <= rate then
    w.reserved[key] = before + cost
    return nil
  end
  return (start_s or math.floor(w.now_ms / 1000)) * 1000 + per_ms + 1
end

local function count_rate(w, job)
  local key, start_s, _, rate = rate_window(w, job)
  if not key then return end
  if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
  if not start_s then redis.call('HSET', key, 'window_start', math.floor(w.now_ms / 1000), 'run_count', 0) end
  redis.call('HINCRBY', key, 'run_count', math.min(job.cost or 1, rate))
end

-- How runs end, and how delayed jobs become waiting ones: everything here writes, while the lease is held.
-- Entries are added before others are removed. So after a call that was cut off a job is in two places rather
-- than in none. A lease protects such a job while it ends, and claims pass over second entries.

-- Take a job out of `pending`, and delete what is known of its runner: the fields by which overseers of
-- HEAD would count it as an orphan, and since when it counts as a foreign one (see wire_strays).
local function leave_pending(w, id)
  if w.adopt_ms > 0 then redis.call('ZREM', w.keys.foreign, id) end
  redis.call('HDEL', at_job(w, id), 'overseer_id', 'started_at')
  return place_drop(w, 'pending', id)
end

-- Of a finished run only its hash is left, for a short time; see wire_ended for callers that wait for it.
local function expire_job_run(w, id, seconds)
  if seconds > 0 then redis.call('EXPIRE', at_job(w, id), seconds) else redis.call('DEL', at_job(w, id)) end
end

local function wire_back(w, id)
  local known = redis.call('EXISTS', at_job(w, id)) == 1
  local held = leave_pending(w, id) > 0
  -- Without an entry in `pending` an earlier copy or a foreign client may have moved it back.
  if known and (held or not wire_place(w, id)) then place_push(w, 'waiting', id, true) end
  list_queue(w)
end

-- Record how long the last 100 runs of a name took: as the worker has measured, else the time since the run
-- started.
local function note_duration(w, id, job, took_ms)
  local started_ms = not took_ms and tonumber(redis.call('HGET', at_job(w, id), 'started_at') or nil)
  took_ms = took_ms or started_ms and math.max(w.now_ms - started_ms, 0)
  if not took_ms or job.kind ~= 'J' then return end
  local key = w.root .. 'job:' .. job.name .. ':duration'
  if redis.call('TYPE', key).ok ~= 'list' then redis.call('DEL', key) end
  redis.call('LPUSH', key, string.format('%d', took_ms))
  redis.call('LTRIM', key, 0, 99)
  redis.call('EXPIRE', key, 2592000)
end

local function wire_done(w, id, job, value, took_ms, redo)
  if value then
    local ttl_ms = job.result_ttl_ms or 3600000
    local record = string.format('{"ok":true,"ended_ms":%d,"fence":0,"took_ms":%d,"value":%s}', w.now_ms,
      took_ms or 0, value)
    if ttl_ms > 0 then
      redis.call('SET', w.prefix .. 'result:' .. id, record, 'PX', string.format('%d', ttl_ms))
    end
  end
  if not redo then note_duration(w, id, job, value and took_ms) end
  redis.call('HDEL', at_job(w, id), 'overseer_id', 'started_at')
  expire_job_run(w, id, w.success_s)
  -- The newest ones are listed for display: the original keeps no list of finished jobs.
  redis.call('ZADD', w.keys.done, string.format('%d', w.now_ms), id)
  if redis.call('ZCARD', w.keys.done) > 1100 then
    redis.call('ZREMRANGEBYRANK', w.keys.done, 0, -1001)
  end
  place_drop(w, 'pending', id)
  tell(w, 'forgotten', id)
end

-- Creates no hash: that of a job which a foreign runner has ended meanwhile may have expired, and a new one
-- would stay for ever.
local function note_failures(w, id, failure)
  if redis.call('EXISTS', at_job(w, id)) == 0 then return end
  redis.call('HSET', at_job(w, id), 'retry_count', string.format('%d', failure.failures))
end

local function wire_again(w, id, _, failure)
  -- An earlier copy was cut off, and the job was moved back since.
  if failure.redo and not place_has(w, 'pending', id) and wire_place(w, id) then return end
  redis.call('ZADD', w.keys.scheduled, string.format('%d', failure.due_ms), id)
  note_failures(w, id, failure)
  leave_pending(w, id)
  list_queue(w)
  tell(w, 'rescheduled', id, failure.due_ms)
end

-- The list of the dead has no bound, and its entries outlive their hashes: each burial checks the oldest
-- and removes those without a hash.
local function to_dead(w, id)
  for _ = 1, 3 do
    local oldest = place_page(w, 'dead', 0, 1)[1]
    if not oldest or redis.call('EXISTS', at_job(w, oldest)) == 1 then break end
    place_drop(w, 'dead', oldest)
  end
  place_drop(w, 'dead', id)
  place_push(w, 'dead', id)
  expire_job_run(w, id, math.max(w.dead_s, 1))
end

local function wire_bury(w, id, _, failure)
  to_dead(w, id)
  note_failures(w, id, failure)
  leave_pending(w, id)
  tell(w, 'banished', id)
end

local function wire_drop(w, id)
  redis.call('DEL', at_job(w, id))
  place_drop(w, 'pending', id)
  tell(w, 'forgotten', id)
end

-- Remove a candidate that cannot run. If it has a hash, it goes to the dead. Else an entry of the engine's
-- own records why it was removed, at most 10,000 of them.
local function wire_set_aside(w, id, place, why)
  if redis.call('HLEN', w.prefix .. 'aside') < 10000 then redis.call('HSET', w.prefix .. 'aside', id, why) end
  local hash = redis.call('TYPE', at_job(w, id)).ok == 'hash'
    and redis.call('HEXISTS', at_job(w, id), 'type') == 1
    and redis.call('HEXISTS', at_job(w, id), 'enqueue_time') == 1 and redis.call('PTTL', at_job(w, id)) < 0
  if hash then
    redis.call('HDEL', at_job(w, id), 'overseer_id', 'started_at')
    to_dead(w, id)
  end
  if place == 'waiting' then
    place_drop_next(w, id)
  else
    for _, which in ipairs({ 'pending', 'waiting', 'scheduled' }) do place_drop(w, which, id) end
  end
  if hash then tell(w, 'banished', id) end
end

local function wire_due(w, most)
  return redis.call('ZRANGE', w.keys.scheduled, '-inf', string.format('%d', w.now_ms), 'BYSCORE', 'LIMIT', 0,
    most)
end

local function wire_due_at(w, id)
  return tonumber(redis.call('ZSCORE', w.keys.scheduled, id))
end

local function wire_next_due_ms(w)
  local due_ms = tonumber(redis.call('ZRANGE', w.keys.scheduled, 0, 0, 'WITHSCORES')[2])
  if not due_ms or due_ms ~= due_ms or due_ms > 9007199254740992 then return nil end
  return math.max(math.floor(due_ms), 0)
end

-- Returns false if the hash is gone: then the id is removed, as the original does.
local function wire_promote(w, id)
  local known = redis.call('EXISTS', at_job(w, id)) == 1
  -- The entry that was pushed last: a copy that was cut off may have pushed this job.
  local last = place_page(w, 'waiting', 0, 1, true)[1]
  if known and last ~= id then place_push(w, 'waiting', id) end
  redis.call('ZREM', w.keys.scheduled, id)
  if known then list_queue(w) end
  return known
end

-- Active jobs whose runners are gone. Overseers of HEAD write their id into the hash, and a heartbeat into
-- `overseers` every 20 s. By their own rule one without a heartbeat for 100 s is dead. v2 writes neither. Its
-- entries come back only after `adopt_after_ms`, where that is set. Ids without a hash can never run: they
-- are removed from `pending`.

local function foreign_since(w, id)
  redis.call('ZADD', w.keys.foreign, 'NX', string.format('%d', w.now_ms), id)
  redis.call('SADD', w.keys.foreign_seen, id)
  return tonumber(redis.call('ZSCORE', w.keys.foreign, id))
end

local function is_stray(w, id)
  local run = redis.pcall('HMGET', at_job(w, id), 'type', 'overseer_id')
  if run.err or not run[1] then return true end
  if run[2] then
    local heard_s = redis.pcall('ZSCORE', w.root .. 'overseers', run[2])
    return not tonumber(type(heard_s) == 'string' and heard_s or nil) or tonumber(heard_s) < w.now_s - 100
  end
  return w.adopt_ms > 0 and foreign_since(w, id) + w.adopt_ms <= w.now_ms
end

-- At most 200 entries are read, from where the last call ended, because many of them may be this engine's.
local function wire_strays(w, most)
  local found, mark = {}, redis.call('HGET', w.prefix .. 'sweep', 'strays_from')
  local from = tonumber(mark or 0)
  local ids = place_page(w, 'pending', from, 200)
  local leased = #ids > 0 and redis.call('ZMSCORE', w.prefix .. 'active', unpack(ids)) or {}
  for i, id in ipairs(ids) do
    if #found < most and not leased[i] and is_stray(w, id) then found[#found + 1] = id end
  end
  -- A page with strays is read again by the next call, because each stray must be seen twice.
  local to = #found > 0 and from or #ids == 200 and from + 200 or 0
  if to ~= from then redis.call('HSET', w.prefix .. 'sweep', 'strays_from', to) end
  -- An entry that has left `pending` is forgotten: if its job comes back, a new run has begun, and so has
  -- its time.
  if #found == 0 and to == 0 and w.adopt_ms > 0 then
    redis.call('ZINTERSTORE', w.keys.foreign, 2, w.keys.foreign, w.keys.foreign_seen, 'WEIGHTS', 1, 0)
    redis.call('DEL', w.keys.foreign_seen)
  end
  return found
end
