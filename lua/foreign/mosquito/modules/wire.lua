-- The wire format of Mosquito.
-- USES core/call: check_types
--      foreign/format: page_of_lists, rfc3339
--      mosquito/ends: count_rate, rate_ends_ms
--      mosquito/looks: register_worker, wire_paused

-- The four structures of a queue in either layout. `document` keeps them as sorted sets. `live` keeps
-- waiting, pending and dead as lists, pushed at the left and read from the right, and scheduled as a sorted
-- set. `which` is one of their names.

local function is_list(w, which)
  return w.live and which ~= 'scheduled'
end

-- In a sorted set, a job that goes last scores above all members, by the smallest step that a double has at
-- a time in ms. A job that goes first scores below all. So the order of arrival holds within one ms as
-- well, and when the clock steps back.
local function score_at(w, key, first)
  local edge = redis.call('ZRANGE', key, 0, 0, unpack(first and { 'WITHSCORES' }
    or { 'REV', 'WITHSCORES' }))
  local score = tonumber(edge[2])
  if not score or score ~= score or (not first and score < w.now_ms) then score = w.now_ms
  elseif first then score = math.min(score - 0.0009765625, w.now_ms)
  else score = score + 0.0009765625 end
  return string.format('%.17g', score)
end

local function place_push(w, which, id, first)
  if is_list(w, which) then return redis.call(first and 'RPUSH' or 'LPUSH', w.keys[which], id) end
  local score = which == 'waiting' and score_at(w, w.keys.waiting, first) or string.format('%d', w.now_ms)
  redis.call('ZADD', w.keys[which], score, id)
end

-- Remove all entries of the id. Returns how many there were.
local function place_drop(w, which, id)
  if is_list(w, which) then return redis.call('LREM', w.keys[which], 0, id) end
  return redis.call('ZREM', w.keys[which], id)
end

-- Remove the entry of the id that a claim would reach first.
local function place_drop_next(w, id)
  if not w.live then return redis.call('ZREM', w.keys.waiting, id) end
  return redis.call('LREM', w.keys.waiting, -1, id)
end

-- Whether the id is there; in a list, with `most` only the newest so many entries are searched.
local function place_has(w, which, id, most)
  if is_list(w, which) then
    return redis.call('LPOS', w.keys[which], id, 'MAXLEN', most or 0) and true or false
  end
  return redis.call('ZSCORE', w.keys[which], id) and true or false
end

local function place_size(w, which)
  return redis.call(is_list(w, which) and 'LLEN' or 'ZCARD', w.keys[which])
end

-- A page of ids and their scores, the oldest first; a list has no scores.
local function place_page(w, which, from, count, newest_first)
  if is_list(w, which) then return page_of_lists({ w.keys[which] }, from, count, newest_first), {} end
  local ids, scores, words = {}, {}, newest_first and { 'REV', 'WITHSCORES' } or { 'WITHSCORES' }
  local found = redis.call('ZRANGE', w.keys[which], from, from + count - 1, unpack(words))
  for at = 1, #found, 2 do ids[#ids + 1], scores[#scores + 1] = found[at], found[at + 1] end
  return ids, scores
end

-- A queue without entries does not show its layout. Then the other queues of the keyspace do, or keys by
-- which the original programs are known, whose layout is `live`. Nothing is read where workers or producers
-- of this layout were at work before.
local function check_keyspace(w)
  local noted = redis.pcall('GET', w.keys.layout)
  if noted == w.layout then return end
  local function refuse(key, found)
    error({ err = 'WRONGTYPE the layout is given as ' .. w.layout .. ", but '" .. found
      .. "' is what the keyspace has: see the key " .. key })
  end
  local queues = redis.pcall('ZRANGE', w.keys.queues, 0, 19, 'REV')
  for _, queue in ipairs(queues.err and {} or queues) do
    for _, which in ipairs({ 'waiting:', 'pending:', 'dead:' }) do
      local kind = redis.call('TYPE', w.root .. which .. queue).ok
      if kind == 'list' or kind == 'zset' then
        if (kind == 'list') ~= w.live then
          refuse(w.root .. which .. queue, w.live and 'document' or 'live')
        end
        return
      end
    end
  end
  if w.live or noted then return end
  for _, name in ipairs({ 'runners', 'coordinator:football', 'coordinator:leadership_lock' }) do
    if redis.call('EXISTS', w.root .. name) == 1 then refuse(w.root .. name, 'live') end
  end
end

-- Writes the layout that engines have begun to use, so that they do not take each other's coordinator for
-- an original one.
local function note_layout(w)
  if redis.pcall('GET', w.keys.layout) ~= w.layout then redis.call('SET', w.keys.layout, w.layout) end
end

-- A key of the wrong type stops the script before its first write, and the error names the layout that it
-- would fit.
local function wire_check(w)
  local three = { w.keys.waiting, w.keys.pending, w.keys.dead }
  if redis.call('EXISTS', unpack(three)) == 0 then check_keyspace(w) end
  local zsets, lists = { w.keys.scheduled, w.keys.queues }, w.live and three or {}
  for _, key in ipairs(w.live and {} or three) do zsets[#zsets + 1] = key end
  local fine, failure = pcall(check_types, zsets, {}, lists, { w.keys.pause })
  if fine then return end
  local text, hint = type(failure) == 'table' and failure.err or tostring(failure), ''
  local wrong, found = string.match(text, '^WRONGTYPE the key (.*) is a (%a+), it must be')
  for _, key in ipairs(three) do
    if wrong == key and found == (w.live and 'zset' or 'list') then
      hint = w.live and "; the layout 'document' keeps it as a zset"
        or "; the layout 'live', which the original programs write, keeps it as a list"
    end
  end
  error({ err = text .. hint })
end

local function at_job(w, id)
  return w.root .. 'job_run:' .. id
end

local function at_rate(w, name)
  return w.root .. 'rate_limit:' .. name
end

-- Publish an event of a job as the original does; its channel has no global prefix.
local function tell(w, event, id, due_ms)
  local text = '{"event":"' .. event .. '","job_run":' .. cjson.encode(id)
  if due_ms then text = text .. ',"execute_time":"' .. rfc3339(due_ms, true) .. '"' end
  redis.call('PUBLISH', 'mosquito:queue:' .. w.queue, text .. '}')
end

-- A queue that has only delayed jobs must be listed as well, because the original's runners read only
-- listed queues.
local function list_queue(w)
  redis.call('ZADD', w.keys.queues, w.now_s, w.queue)
end

-- The overseer of a lease: the incarnation in its token.
local function overseer_of(token)
  return string.match(token, '^%d+:(.*):%d+$') or string.match(token, '^(.*):%d+$') or token
end

local function wire_read(w, id)
  local flat = redis.pcall('HGETALL', at_job(w, id))
  if flat.err then
    return { kind = 'corrupt', why = 'the key of its hash holds another type', body = '' }
  end
  local found = {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  -- As in the original, a hash without these fields is not a run.
  if not found.type or not found.enqueue_time then return nil end
  local left_ms = redis.call('PTTL', at_job(w, id))
  -- The hash of an ended run expires: the run must not start again because of a leftover entry.
  if left_ms >= 0 and left_ms <= math.max(w.success_s, 60) * 1000 then return nil end
  local job = { kind = 'J', name = found.type, body = flat, attempts = 5, priority = 5, due_ms = 0,
    ending = left_ms >= 0, enqueued_ms = tonumber(string.match(found.enqueue_time, '^%d+$')),
    failures = tonumber(string.match(found.retry_count or '0', '^%d+$')) }
  local fine, own = true, nil
  if found.ironclaim then fine, own = pcall(cjson.decode, found.ironclaim) end
  local why = not job.enqueued_ms and 'enqueue_time is no number'
    or not job.failures and 'retry_count is no number'
    or (not fine or (own and type(own) ~= 'table')) and 'the field ironclaim holds no options'
  if why then return { kind = 'corrupt', why = why, body = flat } end
  if own then
    job.attempts, job.crashes_max, job.result_ttl_ms = tonumber(own.attempts) or 5,
      tonumber(own.crashes_max), tonumber(own.result_ttl_ms)
    job.key, job.cost = type(own.key) == 'string' and own.key or nil, tonumber(own.cost)
  end
  return job
end

-- If it is in two places, a move was cut off. The place that the move leaves last counts, so that its next
-- copy does the rest.
local function wire_place(w, id)
  if place_has(w, 'pending', id) then return 'active' end
  if place_has(w, 'scheduled', id) then return 'delayed' end
  if place_has(w, 'dead', id) then return 'dead' end
  if place_has(w, 'waiting', id) then return 'waiting' end
  return redis.call('PTTL', at_job(w, id)) >= 0 and 'done' or nil
end

-- The original draws 3 random digits per ms, and may overwrite a job with the same id. Here they are
-- counted, so that ids are new and jobs that are due in the same ms keep their order. Existing ids are
-- checked all the same, because foreign clients make some.
local function wire_new_id(w, given)
  if given ~= '' then return given end
  local id
  repeat
    id = string.format('%d:%09d', w.now_ms, redis.call('INCR', w.root .. 'ironclaim:ids') % 1000000000)
  until redis.call('EXISTS', at_job(w, id)) == 0
  return id
end

-- item.fields: type, the unique key after `unique_job:` or '', how long it holds (ms), then name and value
-- of each field.
local function wire_admit(w, item)
  local holder = item.fields[2] ~= '' and redis.pcall('GET', w.root .. 'unique_job:' .. item.fields[2])
  return type(holder) == 'string' and holder or nil
end

local function wire_add(w, item, due_ms)
  local fields, words, id = item.fields, {}, item.id
  note_layout(w)
  for i = 4, #fields do words[i - 3] = fields[i] end
  for _, word in ipairs({ 'enqueue_time', string.format('%d', w.now_ms), 'type', fields[1], 'retry_count',
      '0' }) do
    words[#words + 1] = word
  end
  -- The entry last: if a copy is cut off before, the next one finds no entry and adds the job again.
  if fields[2] ~= '' then redis.call('SET', w.root .. 'unique_job:' .. fields[2], id, 'PX', fields[3]) end
  redis.call('DEL', at_job(w, id), w.prefix .. 'result:' .. id)
  for i = 1, #words, PIECE do
    redis.call('HSET', at_job(w, id), unpack(words, i, math.min(i + PIECE - 1, #words)))
  end
  list_queue(w)
  if due_ms > 0 then
    redis.call('ZADD', w.keys.scheduled, string.format('%d', due_ms), id)
  else
    place_push(w, 'waiting', id)
  end
  tell(w, 'enqueued', id, due_ms > 0 and due_ms or nil)
end

local function wire_candidates(w, from, count)
  if wire_paused(w, '*') then return {}, 0 end
  local ids, found = place_page(w, 'waiting', from, count), {}
  for i, id in ipairs(ids) do found[i] = { id = id, place = 'waiting' } end
  return found, #ids == count and from + count or 0
end

-- Jobs that their rate delays are moved to `scheduled` after all candidates have been read.
local function wire_refuses(w, job, id)
  local until_ms = rate_ends_ms(w, job)
  if until_ms then w.kept_back[#w.kept_back + 1] = { id = id, until_ms = until_ms } end
  return until_ms ~= nil
end

local function wire_scanned(w)
  for _, run in ipairs(w.kept_back) do
    redis.call('ZADD', w.keys.scheduled, string.format('%d', run.until_ms), run.id)
    place_drop_next(w, run.id)
    tell(w, 'rescheduled', run.id, run.until_ms)
  end
end

local function wire_take(w, id, job, _, lease)
  if w.taken[id] or place_drop_next(w, id) == 0 then return false end
  -- A second entry of a job that has died meanwhile.
  if job.ending and place_has(w, 'dead', id) then return false end
  w.taken[id] = true
  place_push(w, 'pending', id)
  if job.ending then redis.call('PERSIST', at_job(w, id)) end
  count_rate(w, job)
  -- Registered before its id is in a job, or overseers of HEAD would take the job for an orphan; as they
  -- would without an id.
  local overseer = overseer_of(lease.token)
  register_worker(w, overseer)
  redis.call('HSET', at_job(w, id), 'started_at', string.format('%d', w.now_ms), 'overseer_id', overseer)
  tell(w, 'dequeued', id)
  return true
end

-- The format has no lock to renew. The worker is alive, also one that sends no heartbeats.
local function wire_extend(w, _, lease)
  register_worker(w, overseer_of(lease.token))
end

-- The wire has no lock. That a foreign client has taken an active job over shows in `pending`, and in the
-- overseer id of the hash.
local function wire_mine(w, id, token)
  if not place_has(w, 'pending', id) then return false end
  local named = redis.call('HGET', at_job(w, id), 'overseer_id')
  return not named or named == overseer_of(token)
end

-- Whether a foreign runner holds the job: also one that took it from a worker of the engine whose lease is
-- still listed.
local function wire_locked(w, id)
  if redis.call('ZSCORE', w.prefix .. 'active', id) then
    local nonce = redis.pcall('HGET', w.prefix .. 'run:' .. id, 'nonce')
    return type(nonce) == 'string' and nonce ~= '' and place_has(w, 'pending', id)
      and not wire_mine(w, id, nonce)
  end
  -- Entries that runners of v2 left behind stay for ever, so only the newest are searched. A second entry
  -- of a job that runs now is among them.
  return place_has(w, 'pending', id, 1000)
end

-- What the functions of Mosquito know in one call: the hash of each job run, the four structures of each
-- queue, and the events that are published. `queue` is the queue's name in the keys; `settings` are
-- success_ttl_s, dead_ttl_s, adopt_after_ms, and 1 if the engine's leader takes the coordinator's lock.
local function wire(root, prefix, queue, layout, settings, now_ms)
  local success_s, dead_s, adopt_ms, coordinate = string.match(settings, '^(%d+) (%d+) (%d+) ([01])$')
  local keys = { queues = root .. 'queues', layout = root .. 'ironclaim:layout',
    pause = root .. 'queue:' .. queue .. ':pause', done = prefix .. 'done', overseers = root .. 'overseers',
    -- Entries without a known runner by the time (ms) of the pass that first saw them; those of this pass.
    foreign = prefix .. 'foreign', foreign_seen = prefix .. 'foreign_seen' }
  for _, which in ipairs({ 'waiting', 'pending', 'scheduled', 'dead' }) do
    keys[which] = root .. which .. ':' .. queue
  end
  return { root = root, prefix = prefix, queue = queue, layout = layout, live = layout == 'live', keys = keys,
    now_ms = now_ms, now_s = math.floor(now_ms / 1000), success_s = tonumber(success_s or 1),
    dead_s = tonumber(dead_s or 86400), adopt_ms = tonumber(adopt_ms or 0), coordinate = coordinate == '1',
    -- A claim counts its jobs in the format's own windows (rate_window).
    counts_rates = true, reserved = {}, taken = {}, kept_back = {},
    place_of = { waiting = 'waiting', active = 'pending', delayed = 'scheduled', dead = 'dead' },
    -- The coordinator's locks of v2 and of HEAD. Only their holder promotes jobs and makes periodic ones; the
    -- original's coordinators pause meanwhile.
    locks = { { key = root .. 'coordinator:football', ttl_s = 10 },
      { key = root .. 'coordinator:leadership_lock', ttl_s = 30 } } }
end
