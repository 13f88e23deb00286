-- The wire format of Mosquito.
-- USES core/call: check_types
--      foreign/format: rfc3339
--      mosquito/ends: wire_ends, wire_rates, wire_strays
--      mosquito/looks: wire_looks, wire_registry

-- The four structures of a queue in either layout. `document` keeps them as sorted sets. `live` keeps
-- waiting, pending and dead as lists, pushed at the left and read from the right, and scheduled as a sorted
-- set. `which` is one of their names.
local function wire_places(keys, layout, now_ms)
  local places, live, three = {}, layout == 'live', { keys.waiting, keys.pending, keys.dead }
  local function is_list(which) return live and which ~= 'scheduled' end
  -- In a sorted set, a job that goes last scores above all members, by the smallest step that a double has at
  -- a time in ms. A job that goes first scores below all. So the order of arrival holds within one ms as
  -- well, and when the clock steps back.
  local function score_at(key, first)
    local edge = redis.call('ZRANGE', key, 0, 0, unpack(first and { 'WITHSCORES' }
      or { 'REV', 'WITHSCORES' }))
    local score = tonumber(edge[2])
    if not score or score ~= score or (not first and score < now_ms) then score = now_ms
    elseif first then score = math.min(score - 0.0009765625, now_ms)
    else score = score + 0.0009765625 end
    return string.format('%.17g', score)
  end
  function places.push(which, id, first)
    if is_list(which) then return redis.call(first and 'RPUSH' or 'LPUSH', keys[which], id) end
    local score = which == 'waiting' and score_at(keys.waiting, first) or string.format('%d', now_ms)
    redis.call('ZADD', keys[which], score, id)
  end
  -- Remove all entries of the id. Returns how many there were.
  function places.drop(which, id)
    if is_list(which) then return redis.call('LREM', keys[which], 0, id) end
    return redis.call('ZREM', keys[which], id)
  end
  -- Remove the entry of the id that a claim would reach first.
  function places.drop_next(id)
    if not live then return redis.call('ZREM', keys.waiting, id) end
    if redis.call('LINDEX', keys.waiting, -1) == id then return #redis.call('RPOP', keys.waiting) end
    return redis.call('LREM', keys.waiting, -1, id)
  end
  -- Whether the id is there; in a list, with `most` only the newest so many entries are searched.
  function places.has(which, id, most)
    if is_list(which) then
      return redis.call('LPOS', keys[which], id, 'MAXLEN', most or 0) and true or false
    end
    return redis.call('ZSCORE', keys[which], id) and true or false
  end
  function places.size(which)
    return redis.call(is_list(which) and 'LLEN' or 'ZCARD', keys[which])
  end
  -- A page of ids and their scores, the oldest first; a list has no scores.
  function places.page(which, from, count, newest_first)
    local ids, scores = {}, {}
    if is_list(which) and newest_first then
      ids = redis.call('LRANGE', keys[which], from, from + count - 1)
    elseif is_list(which) then
      local found = redis.call('LRANGE', keys[which], -from - count, -from - 1)
      for at = #found, 1, -1 do ids[#ids + 1] = found[at] end
    else
      local words = newest_first and { 'REV', 'WITHSCORES' } or { 'WITHSCORES' }
      local found = redis.call('ZRANGE', keys[which], from, from + count - 1, unpack(words))
      for at = 1, #found, 2 do ids[#ids + 1], scores[#scores + 1] = found[at], found[at + 1] end
    end
    return ids, scores
  end
  -- A queue without entries does not show its layout. Then the other queues of the keyspace do, or keys by
  -- which the original programs are known, whose layout is `live`. Nothing is read where workers or producers
  -- of this layout were at work before.
  local function check_keyspace()
    local noted = redis.pcall('GET', keys.layout)
    if noted == layout then return end
    local function refuse(key, found)
      error({ err = 'WRONGTYPE the layout is given as ' .. layout .. ", but '" .. found
        .. "' is what the keyspace has: see the key " .. key })
    end
    local queues = redis.pcall('ZRANGE', keys.queues, 0, 19, 'REV')
    for _, queue in ipairs(queues.err and {} or queues) do
      for _, which in ipairs({ 'waiting:', 'pending:', 'dead:' }) do
        local kind = redis.call('TYPE', keys.root .. which .. queue).ok
        if kind == 'list' or kind == 'zset' then
          if (kind == 'list') ~= live then
            refuse(keys.root .. which .. queue, live and 'document' or 'live')
          end
          return
        end
      end
    end
    if live or noted then return end
    for _, name in ipairs({ 'runners', 'coordinator:football', 'coordinator:leadership_lock' }) do
      if redis.call('EXISTS', keys.root .. name) == 1 then refuse(keys.root .. name, 'live') end
    end
  end
  -- Writes the layout that engines have begun to use, so that they do not take each other's coordinator for
  -- an original one.
  function places.note_layout()
    if redis.pcall('GET', keys.layout) ~= layout then redis.call('SET', keys.layout, layout) end
  end
  -- A key of the wrong type stops the script before its first write, and the error names the layout that it
  -- would fit.
  function places.check()
    if redis.call('EXISTS', unpack(three)) == 0 then check_keyspace() end
    local zsets, lists = { keys.scheduled, keys.queues }, live and three or {}
    for _, key in ipairs(live and {} or three) do zsets[#zsets + 1] = key end
    local fine, failure = pcall(check_types, zsets, {}, lists, { keys.pause })
    if fine then return end
    local text, hint = type(failure) == 'table' and failure.err or tostring(failure), ''
    local wrong, found = string.match(text, '^WRONGTYPE the key (.*) is a (%a+), it must be')
    for _, key in ipairs(three) do
      if wrong == key and found == (live and 'zset' or 'list') then
        hint = live and "; the layout 'document' keeps it as a zset"
          or "; the layout 'live', which the original programs write, keeps it as a list"
      end
    end
    error({ err = text .. hint })
  end
  return places
end

-- Mosquito's wire format: the hash of each job run, the four structures of each queue, and the events that
-- are published. `queue` is the queue's name in the keys; `settings` are success_ttl_s, dead_ttl_s,
-- adopt_after_ms, and 1 if the engine's leader takes the coordinator's lock.
local function wire(root, prefix, queue, layout, settings, now_ms)
  local success_s, dead_s, adopt_ms, coordinate = string.match(settings, '^(%d+) (%d+) (%d+) ([01])$')
  local keys = { waiting = root .. 'waiting:' .. queue, pending = root .. 'pending:' .. queue,
    scheduled = root .. 'scheduled:' .. queue,
    dead = root .. 'dead:' .. queue, queues = root .. 'queues', layout = root .. 'ironclaim:layout',
    root = root, pause = root .. 'queue:' .. queue .. ':pause' }
  function keys.job(id) return root .. 'job_run:' .. id end
  function keys.rate(name) return root .. 'rate_limit:' .. name end
  local places, rates = wire_places(keys, layout, now_ms), wire_rates(keys, prefix, now_ms)
  local taken, kept_back, w = {}, {}, { counts_rates = true }
  local at = { layout = layout, root = root, prefix = prefix, queue = queue, keys = keys, places = places,
    rates = rates,
    now_ms = now_ms, now_s = math.floor(now_ms / 1000), success_s = tonumber(success_s or 1),
    dead_s = tonumber(dead_s or 86400),
    adopt_ms = tonumber(adopt_ms or 0), coordinate = coordinate == '1' }

  -- Publish an event of a job as the original does; its channel has no global prefix.
  function at.tell(event, id, due_ms)
    local text = '{"event":"' .. event .. '","job_run":' .. cjson.encode(id)
    if due_ms then text = text .. ',"execute_time":"' .. rfc3339(due_ms, true) .. '"' end
    redis.call('PUBLISH', 'mosquito:queue:' .. queue, text .. '}')
  end
  -- A queue that has only delayed jobs must be listed as well, because the original's runners read only
  -- listed queues.
  function at.list_queue() redis.call('ZADD', keys.queues, at.now_s, queue) end
  -- The overseer of a lease: the incarnation in its token.
  local function overseer_of(token)
    return string.match(token, '^%d+:(.*):%d+$') or string.match(token, '^(.*):%d+$') or token
  end

  function w.check() places.check() end

  function w.read(id)
    local flat = redis.pcall('HGETALL', keys.job(id))
    if flat.err then
      return { kind = 'corrupt', why = 'the key of its hash holds another type', body = '' }
    end
    local found = {}
    for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
    -- As in the original, a hash without these fields is not a run.
    if not found.type or not found.enqueue_time then return nil end
    local left_ms = redis.call('PTTL', keys.job(id))
    -- The hash of an ended run expires: the run must not start again because of a leftover entry.
    if left_ms >= 0 and left_ms <= math.max(at.success_s, 60) * 1000 then return nil end
    local job = { kind = 'J', name = found.type, body = flat, attempts = 5, priority = 5, due_ms = 0,
      ending = left_ms >= 0,
      enqueued_ms = tonumber(string.match(found.enqueue_time, '^%d+$')),
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
  function w.place(id)
    if places.has('pending', id) then return 'active' end
    if places.has('scheduled', id) then return 'delayed' end
    if places.has('dead', id) then return 'dead' end
    if places.has('waiting', id) then return 'waiting' end
    return redis.call('PTTL', keys.job(id)) >= 0 and 'done' or nil
  end

  -- The original draws 3 random digits per ms, and may overwrite a job with the same id. Here they are
  -- counted, so that ids are new and jobs that are due in the same ms keep their order. Existing ids are
  -- checked all the same, because foreign clients make some.
  function w.new_id(given)
    if given ~= '' then return given end
    local id
    repeat
      id = string.format('%d:%09d', now_ms, redis.call('INCR', root .. 'ironclaim:ids') % 1000000000)
    until redis.call('EXISTS', keys.job(id)) == 0
    return id
  end

  -- item.fields: type, the unique key after `unique_job:` or '', how long it holds (ms), then name and value
  -- of each field.
  function w.admit(item)
    local holder = item.fields[2] ~= '' and redis.pcall('GET', root .. 'unique_job:' .. item.fields[2])
    return type(holder) == 'string' and holder or nil
  end

  function w.add(item, due_ms)
    local fields, words, id = item.fields, {}, item.id
    places.note_layout()
    for i = 4, #fields do words[i - 3] = fields[i] end
    for _, word in ipairs({ 'enqueue_time', string.format('%d', now_ms), 'type', fields[1], 'retry_count',
        '0' }) do
      words[#words + 1] = word
    end
    -- The entry last: if a copy is cut off before, the next one finds no entry and adds the job again.
    if fields[2] ~= '' then redis.call('SET', root .. 'unique_job:' .. fields[2], id, 'PX', fields[3]) end
    redis.call('DEL', keys.job(id), prefix .. 'result:' .. id)
    for i = 1, #words, PIECE do
      redis.call('HSET', keys.job(id), unpack(words, i, math.min(i + PIECE - 1, #words)))
    end
    at.list_queue()
    if due_ms > 0 then
      redis.call('ZADD', keys.scheduled, string.format('%d', due_ms), id)
    else
      places.push('waiting', id)
    end
    at.tell('enqueued', id, due_ms > 0 and due_ms or nil)
  end

  function w.candidates(from, count)
    if w.paused('*') then return {}, 0 end
    local ids, found = places.page('waiting', from, count), {}
    for i, id in ipairs(ids) do found[i] = { id = id, place = 'waiting' } end
    return found, #ids == count and from + count or 0
  end

  -- Jobs that their rate delays are moved to `scheduled` after all candidates have been read.
  function w.elsewhere() return false end
  function w.refuses(job, id)
    local until_ms = rates.kept_until_ms(job)
    if until_ms then kept_back[#kept_back + 1] = { id = id, until_ms = until_ms } end
    return until_ms ~= nil
  end
  function w.scanned()
    for _, run in ipairs(kept_back) do
      redis.call('ZADD', keys.scheduled, string.format('%d', run.until_ms), run.id)
      places.drop_next(run.id)
      at.tell('rescheduled', run.id, run.until_ms)
    end
  end

  function w.take(id, job, _, lease)
    if taken[id] or places.drop_next(id) == 0 then return false end
    -- A second entry of a job that has died meanwhile.
    if job.ending and places.has('dead', id) then return false end
    taken[id] = true
    places.push('pending', id)
    if job.ending then redis.call('PERSIST', keys.job(id)) end
    rates.count(job)
    -- Registered before its id is in a job, or overseers of HEAD would take the job for an orphan; as they
    -- would without an id.
    local overseer = overseer_of(lease.token)
    at.register(overseer)
    redis.call('HSET', keys.job(id), 'started_at', string.format('%d', now_ms), 'overseer_id', overseer)
    at.tell('dequeued', id)
    return true
  end

  -- The format has no lock to renew. The worker is alive, also one that sends no heartbeats.
  function w.extend(_, lease) at.register(overseer_of(lease.token)) end

  -- The wire has no lock. That a foreign client has taken an active job over shows in `pending`, and in the
  -- overseer id of the hash.
  function w.mine(id, token)
    if not places.has('pending', id) then return false end
    local named = redis.call('HGET', keys.job(id), 'overseer_id')
    return not named or named == overseer_of(token)
  end

  -- Whether a foreign runner holds the job: also one that took it from a worker of the engine whose lease is
  -- still listed.
  function w.locked(id)
    if redis.call('ZSCORE', prefix .. 'active', id) then
      local nonce = redis.pcall('HGET', prefix .. 'run:' .. id, 'nonce')
      return type(nonce) == 'string' and nonce ~= '' and places.has('pending', id) and not w.mine(id, nonce)
    end
    -- Entries that runners of v2 left behind stay for ever, so only the newest are searched. A second entry
    -- of a job that runs now is among them.
    return places.has('pending', id, 1000)
  end

  wire_ends(w, at)
  wire_looks(w, at)
  wire_strays(w, at)
  wire_registry(w, at)
  return w
end
