-- BridgeMQ: reads of jobs, admin actions, its registry of workers, and its schedules.
-- USES foreign/claim: own_words
--      foreign/format: json_members, unpack_fields

-- Reads of the keyspace, removals by admin actions, and pauses. The format has no list of finished jobs: the
-- engine keeps one of its own last 1,000.
local function bridge_looks(w)
  local lists, zsets = { waiting = w.at_waiting, dead = w.at_dead },
    { delayed = w.at_delayed, done = w.at_done }

  function w.count(state)
    if lists[state] then return redis.call('LLEN', lists[state]) end
    if zsets[state] then return redis.call('ZCARD', zsets[state]) end
    return state == 'active' and redis.call('SCARD', w.at_active) or 0
  end

  function w.list(state, offset, limit, newest_first)
    local found = {}
    if zsets[state] then
      local words = { 'ZRANGE', zsets[state], offset, offset + limit - 1 }
      if newest_first then words[5] = 'REV' end
      words[#words + 1] = 'WITHSCORES'
      return redis.call(unpack(words))
    end
    local ids = {}
    if state == 'active' then
      ids = redis.call('SMEMBERS', w.at_active)
      table.sort(ids)
      ids = { unpack(ids, offset + 1, math.min(offset + limit, #ids)) }
    elseif lists[state] then
      -- Dead jobs are pushed to the head of their list, waiting ones to the end.
      local backwards = (state == 'dead') ~= (newest_first or false)
      local first, last = offset, offset + limit - 1
      if backwards then first, last = -offset - limit, -offset - 1 end
      if not (backwards and offset >= redis.call('LLEN', lists[state])) then
        ids = redis.call('LRANGE', lists[state], first, last)
      end
      if backwards then
        local turned = {}
        for at = #ids, 1, -1 do turned[#turned + 1] = ids[at] end
        ids = turned
      end
    end
    for _, id in ipairs(ids) do
      -- The time of death is in the job's result, as long as there is one.
      local ended_ms = state == 'dead' and string.match(w.text(w.at_result(id)) or '',
        '"completedAt":(%d+),"processingTime":%d+}$')
      found[#found + 1], found[#found + 2] = id, ended_ms or '0'
    end
    return found
  end

  function w.ended(id)
    local status = w.text(w.at_status(id))
    if status ~= 'completed' and status ~= 'dead' and status ~= 'failed' then return nil end
    local raw = w.text(w.at_result(id)) or ''
    local members = json_members(raw)
    local function part(name) return members and members.raw(name) end
    local function whole(name) return tonumber(part(name)) and w.ms(tonumber(part(name))) or '0' end
    local record = '"ended_ms":' .. whole('completedAt') .. ',"fence":0'
    if status == 'completed' then
      local value = part('data') and ',"value":' .. part('data') or ''
      record = raw ~= '' and '{"ok":true,' .. record .. ',"took_ms":' .. whole('processingTime') .. value
        .. '}' or ''
      return { state = 'finished', ended_ms = tonumber(whole('completedAt')), record = record }
    end
    local read, failure = pcall(cjson.decode, part('error') or '{}')
    failure = read and type(failure) == 'table' and failure or {}
    local name, message = failure.name, type(failure.message) == 'string' and failure.message or ''
    local error = (type(name) == 'string' and name ~= 'Error' and name .. ': ' or '') .. message
    record = raw ~= '' and '{"ok":false,' .. record .. ',"error":' .. cjson.encode(error) .. '}' or ''
    return { state = 'dead', ended_ms = tonumber(whole('completedAt')), record = record, error = error }
  end

  -- Writes.
  function w.remove(id, state)
    if state == 'delayed' then w.undelay(id) end
    redis.call('ZREM', w.at_done, id)
    if lists[state] then redis.call('LREM', lists[state], 0, id) end
    if state == 'active' then w.leave(id, w.read(id)) end
    redis.call('DEL', w.at_result(id), w.at_lock(id), w.at_progress(id))
    -- A schedule keeps its JSON under the same key, which must stay.
    if redis.call('ZSCORE', w.at_cron, id) then return end
    -- Without a record, jobs that depend on this one would wait for its status for ever.
    redis.call('SET', w.prefix .. 'gone:' .. id, state == 'done' and 'completed' or 'failed', 'EX', 604800)
    redis.call('DEL', w.at_data(id), w.at_status(id))
  end

  -- Writes. Finished jobs are in no index, so the keys themselves are scanned; the position where a call
  -- stops is kept for the next.
  function w.purge(most)
    redis.call('DEL', w.at_waiting, w.at_active, w.at_delayed, w.at_cron, w.at_dead, w.at_paused)
    local cursor = w.prefix .. 'purge'
    local literal = string.gsub(w.root, '[%*%?%[%]%^\\-]', '\\%0')
    local more = false
    for _, kind in ipairs({ 'jobs', 'ratelimit' }) do
      local from = redis.call('HGET', cursor, kind) or '0'
      if from ~= 'end' then
        local next, keys = unpack(redis.call('SCAN', from, 'MATCH', literal .. kind .. ':*', 'COUNT', most))
        for _, key in ipairs(keys) do redis.call('UNLINK', key) end
        redis.call('HSET', cursor, kind, next == '0' and 'end' or next)
        more = more or next ~= '0'
      end
    end
    if not more then redis.call('DEL', cursor) end
    return more
  end

  -- Writes. The format can pause types of jobs, but not all of them at once.
  function w.pause(name)
    if name ~= '*' then redis.call('SADD', w.at_paused, name) end
  end
  function w.resume(name) redis.call('SREM', w.at_paused, name) end
  function w.paused(name) return redis.call('SISMEMBER', w.at_paused, name) == 1 end
end

-- The registry of workers, the scheduler's lock, and the remains of foreign clients that are gone.
local function bridge_workers(w)
  local lock = w.root .. 'scheduler:lock'
  local function about_key(server) return w.root .. 'workers:' .. server end
  local function heart_key(server) return w.root .. 'workers:heartbeat:' .. server end

  -- Writes. A name that would be another key of the registry is not entered (the model refuses such a name
  -- before).
  function w.beat(incarnation, about, ttl_ms, gone)
    local read, worker = pcall(cjson.decode, about)
    local name = read and type(worker) == 'table' and worker.name
    if gone then
      -- The last heartbeat does not describe the worker.
      name = redis.call('HGET', w.prefix .. 'servers', incarnation)
      redis.call('HDEL', w.prefix .. 'servers', incarnation)
      if w.text(lock) == incarnation then redis.call('DEL', lock) end
      if name then
        redis.call('SREM', w.at_workers, name)
        redis.call('DEL', about_key(name), heart_key(name))
      end
      return
    end
    if type(name) ~= 'string' or name == 'active' or string.find(name, '^heartbeat:') then return end
    local is = type(worker.routing) == 'table' and worker.routing or {}
    local has = type(is.capabilities) == 'table' and #is.capabilities > 0 and cjson.encode(is.capabilities)
      or '[]'
    local function text(value) return w.quoted(type(value) == 'string' and value or '') end
    redis.call('HSET', w.prefix .. 'servers', incarnation, name)
    redis.call('SADD', w.at_workers, name)
    redis.call('SET', about_key(name), '{"serverId":' .. text(name) .. ',"stack":' .. text(is.stack)
      .. ',"region":' .. text(is.region)
      .. ',"capabilities":' .. has .. ',"lastSeen":' .. w.ms(w.now_ms) .. ',"pid":'
      .. w.ms(tonumber(worker.pid) or 0)
      .. ',"hostname":' .. text(worker.host) .. '}')
    redis.call('SET', heart_key(name), w.ms(w.now_ms), 'PX', w.ms(ttl_ms))
  end

  -- Writes. Take the scheduler's lock, or renew it as its holder: the original can neither renew nor release
  -- it.
  function w.lead(incarnation, ttl_ms)
    if redis.call('SET', lock, incarnation, 'NX', 'PX', w.ms(ttl_ms)) then return true end
    return w.text(lock) == incarnation and redis.call('PEXPIRE', lock, w.ms(ttl_ms)) == 1
  end

  -- Those of the registry that are not of this engine, at most 1,000.
  function w.workers()
    local names, ours, found = redis.call('SMEMBERS', w.at_workers), {}, {}
    table.sort(names)
    for _, name in ipairs(redis.call('HVALS', w.prefix .. 'servers')) do ours[name] = true end
    for _, name in ipairs(names) do
      local members = not ours[name] and #found < 1000 and json_members(w.text(about_key(name)) or '{}')
      if members then
        local function raw(field, kind, default)
          return type(members.value(field)) == kind and members.raw(field) or default
        end
        local read, list = pcall(cjson.decode, members.raw('capabilities') or '')
        local capabilities = read and type(list) == 'table' and #list > 0 and cjson.encode(list) or '[]'
        local heard_ms = tonumber(w.text(heart_key(name))) or tonumber(members.value('lastSeen')) or 0
        found[#found + 1] = { name = name, heard_ms = math.floor(heard_ms),
          ttl_ms = redis.call('EXISTS', heart_key(name)) == 1 and 30000 or 1,
          about = '{"name":' .. w.quoted(name) .. ',"host":' .. raw('hostname', 'string', '""') .. ',"pid":'
          .. w.ms(tonumber(members.value('pid')) or 0)
            .. ',"attributes":{"stack":' .. raw('stack', 'string', '""') .. ',"region":'
            .. raw('region', 'string', '""')
            .. ',"capabilities":' .. capabilities .. '}}' }
      end
    end
    return found
  end

  -- Whether a worker had a heartbeat and has none any more. The first heartbeat comes late: until then the
  -- time of its entry counts.
  local function dead(server)
    if redis.call('SISMEMBER', w.at_workers, server) == 0 or redis.call('EXISTS', heart_key(server)) == 1 then
      return false
    end
    local members = json_members(w.text(about_key(server)) or '')
    local seen_ms = members and tonumber(members.value('lastSeen')) or 0
    return seen_ms < w.now_ms - 30000
  end

  -- Writes. Correct a counter that differs from the number of active jobs of its type, because it has leaked
  -- or was lost. Only counters that have kept a job waiting are checked, and only while there are few enough
  -- active jobs to count them here.
  local function mend_counters()
    local kinds = redis.call('SMEMBERS', w.at_limited)
    if #kinds == 0 or redis.call('SCARD', w.at_active) > 2000 then return end
    local running = {}
    for _, id in ipairs(redis.call('SMEMBERS', w.at_active)) do
      local kind = (w.read(id) or {}).name
      if kind then running[kind] = (running[kind] or 0) + 1 end
    end
    for _, kind in ipairs(kinds) do
      local counted = w.text(w.at_running(kind))
      if counted and tonumber(counted) ~= (running[kind] or 0) then
        redis.call('SET', w.at_running(kind), running[kind] or 0, 'KEEPTTL')
      end
      if not running[kind] then redis.call('SREM', w.at_limited, kind) end
    end
  end

  -- Active jobs, except `ours`, whose lock has expired or belongs to a dead worker. Writes only counters and
  -- the position where it stops. Jobs that were found before come first, because they must be seen twice
  -- while the search goes round in pieces.
  function w.strays(most, ours)
    mend_counters()
    local key, found, known = w.prefix .. 'looked', {}, {}
    local function look(id)
      if known[id] or #found >= most then return end
      known[id] = true
      if redis.call('SISMEMBER', w.at_active, id) == 0 or ours(id) then return end
      local holder = w.text(w.at_lock(id))
      if not holder or dead(holder) then found[#found + 1] = id end
    end
    for _, id in ipairs(redis.call('ZRANGE', w.prefix .. 'strays', 0, most - 1)) do look(id) end
    local next, ids = unpack(redis.call('SSCAN', w.at_active, w.text(key) or '0', 'COUNT',
      math.max(most, 100)))
    if next == '0' then redis.call('DEL', key) else redis.call('SET', key, next) end
    for _, id in ipairs(ids) do look(id) end
    return found
  end
end

-- Schedules on the wire. As in the original, each is an entry of `jobs:cron` under the name of the schedule,
-- with the job's JSON beside it; the definition that ticks is the engine's (`cron:<name>`). An entry of a
-- foreign client becomes such a definition when it is due. The score on the wire decides: if a client has
-- moved it, that is when the next tick is.
local function bridge_cron(w)
  local index = w.prefix .. 'cron'
  local function own(name) return w.prefix .. 'cron:' .. name end
  local function packed(...)
    local parts = {}
    for _, field in ipairs({ ... }) do parts[#parts + 1] = struct.pack('>I4', #field) .. field end
    return table.concat(parts)
  end
  local function decoded(text)
    local read, value = pcall(cjson.decode, text or '')
    return read and type(value) == 'table' and value or {}
  end

  local function schedule_of(job)
    local schedule = decoded(job and job.kind == 'J' and json_members(job.raw).raw('schedule'))
    return type(schedule.cron) == 'string' and schedule or nil
  end

  -- An entry of a foreign client as a definition of the engine: timing, job, error; nil where no job belongs
  -- to it.
  local function defined(id)
    local job = w.read(id)
    local schedule = schedule_of(job)
    if not schedule then
      return job and { timing = '', job = '', error = 'a schedule that cannot be read' }
    end
    local members = json_members(job.raw)
    members.set('schedule', '{}')
    local zone = type(schedule.timezone) == 'string' and schedule.timezone ~= ''
      and ',"zone":' .. w.quoted(schedule.timezone) or ''
    return { timing = '{"cron":' .. w.quoted(schedule.cron) .. zone .. '}',
      job = packed('', packed(w.ms(job.priority), '', members.text())),
      error = '' }
  end

  local function score_ms(score) return w.ms(math.max(0, math.floor(tonumber(score)))) end

  -- Writes: turns an entry of a foreign client into a definition of the engine. The index before the hash, as
  -- in schedule_put.
  local function adopt(id, next_ms, new)
    redis.call('ZADD', index, next_ms, id)
    redis.call('HSET', own(id), 'version', redis.call('HINCRBY', w.prefix .. 'stats', 'schedules', 1),
      'timing', new.timing, 'policy', '{}', 'job', new.job, 'enabled', '1', 'next_ms', next_ms, 'anchor_ms',
      next_ms, 'wire', '1',
      'error', new.error)
  end

  -- Writes, before a schedule is changed: turns an entry of this name into a definition of the engine, unless
  -- there is one.
  function w.adopt_schedule(name)
    local score = redis.call('ZSCORE', w.at_cron, name)
    local new = score and redis.call('EXISTS', own(name)) == 0 and defined(name)
    if new then adopt(name, score_ms(score), new) end
  end

  -- Adds an entry that no sweep has taken over yet to a page, as add_schedule does.
  function w.add_entry(page, name)
    local score = redis.call('ZSCORE', w.at_cron, name)
    local new = score and defined(name)
    if not new then return end
    local next_ms = score_ms(score)
    for _, word in ipairs({ name, '0', new.timing, '{}', new.job, '1', next_ms, next_ms, '0', '', '0', '0',
        '0', new.error }) do
      page[#page + 1] = word
    end
  end

  -- A page of the names of all schedules by next tick, and how many there are. They are those of the engine's
  -- index and, between them, the entries that no sweep has taken over yet.
  function w.schedule_names(offset, limit)
    local entries, names, before = redis.call('ZDIFF', 2, w.at_cron, index, 'WITHSCORES'), {}, 0
    local places = {}
    for at = 1, #entries, 2 do
      local place = (at - 1) / 2 + redis.call('ZCOUNT', index, '-inf', entries[at + 1])
      if place >= offset + limit then break end
      if place < offset then before = before + 1 else places[place] = entries[at] end
    end
    local known = redis.call('ZRANGE', index, offset - before, offset - before + limit - 1)
    local taken = 0
    for place = offset, offset + limit - 1 do
      if not places[place] then taken = taken + 1 end
      names[#names + 1] = places[place] or known[taken]
    end
    return names, redis.call('ZCARD', index) + #entries / 2
  end

  local function tell(name, next_ms)
    redis.call('HSET', own(name), 'next_ms', next_ms)
    redis.call('ZADD', index, next_ms, name)
  end

  -- Writes, before a schedule ticks: takes over what a foreign client has moved or removed meanwhile.
  function w.settle_schedule(name)
    local known = own_words(own(name), 'wire', 'next_ms')
    -- A schedule that does not tick is not on the wire.
    if not known[1] or known[2] == '0' then return end
    local score = redis.call('ZSCORE', w.at_cron, name)
    if not score then
      redis.call('DEL', own(name))
      redis.call('ZREM', index, name)
    elseif score_ms(score) ~= known[2] then
      tell(name, score_ms(score))
    end
  end

  function w.next_tick_ms(name)
    local known = own_words(own(name), 'wire', 'next_ms')
    if not known[1] or known[2] == '0' then return nil end
    local score = redis.call('ZSCORE', w.at_cron, name)
    return score and score_ms(score) or false
  end

  -- Writes: takes over entries of foreign clients when they are due. Returns the new ones, each with name,
  -- version, next tick, anchor, timing and policy. The next sweep finds the others in the engine's own index.
  function w.due_schedules(most)
    local now, due = w.ms(w.now_ms), {}
    local found = redis.call('ZRANGE', w.at_cron, '-inf', now, 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
    for at = 1, #found, 2 do
      local id, next_ms = found[at], score_ms(found[at + 1])
      local known = own_words(own(id), 'version', 'next_ms', 'error')
      local new = not known[1] and defined(id)
      if known[1] and known[3] == '' then
        if known[2] ~= next_ms then tell(id, next_ms) end
      elseif not known[1] and not new then
        redis.call('ZREM', w.at_cron, id)
      elseif new and new.error == '' then
        adopt(id, next_ms, new)
        due[#due + 1] = id
        for _, word in ipairs(own_words(own(id), 'version', 'next_ms', 'anchor_ms', 'timing', 'policy')) do
          due[#due + 1] = word
        end
      else
        -- Its next tick cannot be computed: it is tried again in a minute, so that it does not block the
        -- others.
        redis.call('HSET', w.prefix .. 'aside', id, 'a schedule that cannot be read')
        redis.call('ZADD', w.at_cron, 'XX', w.ms(w.now_ms + 60000), id)
      end
    end
    return due
  end

  -- Writes: a schedule was put, has ticked (next_ms: its next one), was disabled or could not tick (0), or
  -- removed (no `template`). Intervals and months are not on the wire: only the engine ticks them.
  function w.scheduled(name, next_ms, given)
    local known = own_words(own(name), 'timing', 'error')
    local timing, entry = decoded(known[1]), w.read(name)
    if not given then
      redis.call('ZREM', w.at_cron, name)
      if schedule_of(entry) then redis.call('DEL', w.at_data(name), w.at_status(name)) end
    elseif next_ms == 0 and known[2] and known[2] ~= '' then
      redis.call('ZADD', w.at_cron, 'XX', w.ms(w.now_ms + 60000), name)
    elseif next_ms == 0 or not timing.cron then
      redis.call('ZREM', w.at_cron, name)
    elseif schedule_of(entry) or not entry then
      local made_ms = entry and entry.enqueued_ms > 0 and entry.enqueued_ms or w.now_ms
      local members = json_members(w.json_of(name, unpack_fields(unpack_fields(given)[2]), made_ms))
      members.set('schedule', '{"cron":' .. w.quoted(timing.cron) .. ',"timezone":'
        .. w.quoted(timing.zone or 'UTC') .. '}')
      -- The job of a foreign client's entry is not changed.
      local adopted = unpack_fields(given)[1] == ''
      if not (entry and adopted) then
        redis.call('MSET', w.at_data(name), members.text(), w.at_status(name), 'cron')
      end
      redis.call('HSET', own(name), 'wire', '1')
      redis.call('ZADD', w.at_cron, w.ms(next_ms), name)
    end
  end

  -- The schedule's own entry is waiting or active: a foreign client has enqueued it for this tick.
  function w.admit(item)
    local name = string.match(item.id, '^cron:(.*):%d+$')
    if not name or not redis.call('ZSCORE', w.at_cron, name) then return nil end
    local there = redis.call('SISMEMBER', w.at_active, name) == 1 or redis.call('LPOS', w.at_waiting, name)
    return there and name or nil
  end
end
