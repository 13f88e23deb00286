-- BridgeMQ: reads of jobs, admin actions, its registry of workers, and its schedules.
-- USES bridge/claims: leave_active, undelay
--      bridge/wire: at_data, at_lock, at_progress, at_result, at_running, at_status, job_json, json_quoted,
--        ms_text, text_at, wire_read
--      foreign/claim: own_words
--      foreign/format: json_members, json_raw, json_set, json_text, json_value, page_of_lists, unpack_fields

-- Reads of the keyspace, removals by admin actions, and pauses. The format has no list of finished jobs: the
-- engine keeps one of its own last 1,000.

local function wire_count(w, state)
  if w.lists[state] then return redis.call('LLEN', w.lists[state]) end
  if w.zsets[state] then return redis.call('ZCARD', w.zsets[state]) end
  return state == 'active' and redis.call('SCARD', w.at_active) or 0
end

local function wire_list(w, state, offset, limit, newest_first)
  local found = {}
  if w.zsets[state] then
    local words = { 'ZRANGE', w.zsets[state], offset, offset + limit - 1 }
    if newest_first then words[5] = 'REV' end
    words[#words + 1] = 'WITHSCORES'
    return redis.call(unpack(words))
  end
  local ids = {}
  if state == 'active' then
    ids = redis.call('SMEMBERS', w.at_active)
    table.sort(ids)
    ids = { unpack(ids, offset + 1, math.min(offset + limit, #ids)) }
  elseif w.lists[state] then
    -- Dead jobs are pushed to the head of their list, waiting ones to the end.
    ids = page_of_lists({ w.lists[state] }, offset, limit, (state == 'dead') == (newest_first or false))
  end
  for _, id in ipairs(ids) do
    -- The time of death is in the job's result, as long as there is one.
    local ended_ms = state == 'dead' and string.match(text_at(at_result(w, id)) or '',
      '"completedAt":(%d+),"processingTime":%d+}$')
    found[#found + 1], found[#found + 2] = id, ended_ms or '0'
  end
  return found
end

local function wire_ended(w, id)
  local status = text_at(at_status(w, id))
  if status ~= 'completed' and status ~= 'dead' and status ~= 'failed' then return nil end
  local raw = text_at(at_result(w, id)) or ''
  local members = json_members(raw)
  local function part(name) return members and json_raw(members, name) end
  local function whole(name) return tonumber(part(name)) and ms_text(tonumber(part(name))) or '0' end
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
local function wire_remove(w, id, state)
  if state == 'delayed' then undelay(w, id) end
  redis.call('ZREM', w.at_done, id)
  if w.lists[state] then redis.call('LREM', w.lists[state], 0, id) end
  if state == 'active' then leave_active(w, id, wire_read(w, id)) end
  redis.call('DEL', at_result(w, id), at_lock(w, id), at_progress(w, id))
  -- A schedule keeps its JSON under the same key, which must stay.
  if redis.call('ZSCORE', w.at_cron, id) then return end
  -- Without a record, jobs that depend on this one would wait for its status for ever.
  redis.call('SET', w.prefix .. 'gone:' .. id, state == 'done' and 'completed' or 'failed', 'EX', 604800)
  redis.call('DEL', at_data(w, id), at_status(w, id))
end

-- Writes. Finished jobs are in no index, so the keys themselves are scanned; the position where a call
-- stops is kept for the next.
local function wire_purge(w, most)
  redis.call('DEL', w.at_waiting, w.at_active, w.at_delayed, w.at_cron, w.at_dead, w.at_paused)
  local cursor = w.prefix .. 'purge'
  local more = false
  for _, kind in ipairs({ 'jobs', 'ratelimit' }) do
    local from = redis.call('HGET', cursor, kind) or '0'
    if from ~= 'end' then
      local next, keys = unpack(redis.call('SCAN', from, 'MATCH', w.root .. kind .. ':*', 'COUNT', most))
      for _, key in ipairs(keys) do redis.call('UNLINK', key) end
      redis.call('HSET', cursor, kind, next == '0' and 'end' or next)
      more = more or next ~= '0'
    end
  end
  if not more then redis.call('DEL', cursor) end
  return more
end

-- Writes. The format can pause types of jobs, but not all of them at once.
local function wire_pause(w, name)
  if name ~= '*' then redis.call('SADD', w.at_paused, name) end
end

local function wire_resume(w, name)
  redis.call('SREM', w.at_paused, name)
end

local function wire_paused(w, name)
  return redis.call('SISMEMBER', w.at_paused, name) == 1
end

-- The registry of workers, the scheduler's w.at_scheduler, and the remains of foreign clients that are gone.

local function at_about(w, server)
  return w.root .. 'workers:' .. server
end

local function at_heartbeat(w, server)
  return w.root .. 'workers:heartbeat:' .. server
end

-- Writes. A name that would be another key of the registry is not entered (the model refuses such a name
-- before).
local function wire_beat(w, incarnation, about, ttl_ms, gone)
  local read, worker = pcall(cjson.decode, about)
  local name = read and type(worker) == 'table' and worker.name
  if gone then
    -- The last heartbeat does not describe the worker.
    name = redis.call('HGET', w.prefix .. 'servers', incarnation)
    redis.call('HDEL', w.prefix .. 'servers', incarnation)
    if text_at(w.at_scheduler) == incarnation then redis.call('DEL', w.at_scheduler) end
    if name then
      redis.call('SREM', w.at_workers, name)
      redis.call('DEL', at_about(w, name), at_heartbeat(w, name))
    end
    return
  end
  if type(name) ~= 'string' or name == 'active' or string.find(name, '^heartbeat:') then return end
  local is = type(worker.routing) == 'table' and worker.routing or {}
  local has = type(is.capabilities) == 'table' and #is.capabilities > 0 and cjson.encode(is.capabilities)
    or '[]'
  local function text(value) return json_quoted(type(value) == 'string' and value or '') end
  redis.call('HSET', w.prefix .. 'servers', incarnation, name)
  redis.call('SADD', w.at_workers, name)
  redis.call('SET', at_about(w, name), '{"serverId":' .. text(name) .. ',"stack":' .. text(is.stack)
    .. ',"region":' .. text(is.region)
    .. ',"capabilities":' .. has .. ',"lastSeen":' .. ms_text(w.now_ms) .. ',"pid":'
    .. ms_text(tonumber(worker.pid) or 0)
    .. ',"hostname":' .. text(worker.host) .. '}')
  redis.call('SET', at_heartbeat(w, name), ms_text(w.now_ms), 'PX', ms_text(ttl_ms))
end

-- Writes. Take the scheduler's lock, or renew it as its holder: the original can neither renew nor release
-- it.
local function wire_lead(w, incarnation, ttl_ms)
  if redis.call('SET', w.at_scheduler, incarnation, 'NX', 'PX', ms_text(ttl_ms)) then return true end
  return text_at(w.at_scheduler) == incarnation
    and redis.call('PEXPIRE', w.at_scheduler, ms_text(ttl_ms)) == 1
end

-- Those of the registry that are not of this engine, at most 1,000.
local function wire_workers(w)
  local names, ours, found = redis.call('SMEMBERS', w.at_workers), {}, {}
  table.sort(names)
  for _, name in ipairs(redis.call('HVALS', w.prefix .. 'servers')) do ours[name] = true end
  for _, name in ipairs(names) do
    local members = not ours[name] and #found < 1000 and json_members(text_at(at_about(w, name)) or '{}')
    if members then
      local function raw(field, kind, default)
        return type(json_value(members, field)) == kind and json_raw(members, field) or default
      end
      local read, list = pcall(cjson.decode, json_raw(members, 'capabilities') or '')
      local capabilities = read and type(list) == 'table' and #list > 0 and cjson.encode(list) or '[]'
      local heard_ms = tonumber(text_at(at_heartbeat(w, name)))
        or tonumber(json_value(members, 'lastSeen')) or 0
      found[#found + 1] = { name = name, heard_ms = math.floor(heard_ms),
        ttl_ms = redis.call('EXISTS', at_heartbeat(w, name)) == 1 and 30000 or 1,
        about = '{"name":' .. json_quoted(name) .. ',"host":' .. raw('hostname', 'string', '""') .. ',"pid":'
        .. ms_text(tonumber(json_value(members, 'pid')) or 0)
          .. ',"attributes":{"stack":' .. raw('stack', 'string', '""') .. ',"region":'
          .. raw('region', 'string', '""')
          .. ',"capabilities":' .. capabilities .. '}}' }
    end
  end
  return found
end

-- Whether a worker had a heartbeat and has none any more. The first heartbeat comes late: until then the
-- time of its entry counts.
local function server_is_dead(w, server)
  if redis.call('SISMEMBER', w.at_workers, server) == 0
      or redis.call('EXISTS', at_heartbeat(w, server)) == 1 then
    return false
  end
  local members = json_members(text_at(at_about(w, server)) or '')
  local seen_ms = members and tonumber(json_value(members, 'lastSeen')) or 0
  return seen_ms < w.now_ms - 30000
end

-- Writes. Correct a counter that differs from the number of active jobs of its type, because it has leaked
-- or was lost. Only counters that have kept a job waiting are checked, and only while there are few enough
-- active jobs to count them here.
local function mend_counters(w)
  local kinds = redis.call('SMEMBERS', w.at_limited)
  if #kinds == 0 or redis.call('SCARD', w.at_active) > 2000 then return end
  local running = {}
  for _, id in ipairs(redis.call('SMEMBERS', w.at_active)) do
    local kind = (wire_read(w, id) or {}).name
    if kind then running[kind] = (running[kind] or 0) + 1 end
  end
  for _, kind in ipairs(kinds) do
    local counted = text_at(at_running(w, kind))
    if counted and tonumber(counted) ~= (running[kind] or 0) then
      redis.call('SET', at_running(w, kind), running[kind] or 0, 'KEEPTTL')
    end
    if not running[kind] then redis.call('SREM', w.at_limited, kind) end
  end
end

-- Active jobs, except `ours`, whose lock has expired or belongs to a dead worker. Writes only counters and
-- the position where it stops. Jobs that were found before come first, because they must be seen twice
-- while the search goes round in pieces.
local function wire_strays(w, most, ours)
  mend_counters(w)
  local key, found, known = w.prefix .. 'looked', {}, {}
  local function look(id)
    if known[id] or #found >= most then return end
    known[id] = true
    if redis.call('SISMEMBER', w.at_active, id) == 0 or ours(id) then return end
    local holder = text_at(at_lock(w, id))
    if not holder or server_is_dead(w, holder) then found[#found + 1] = id end
  end
  for _, id in ipairs(redis.call('ZRANGE', w.prefix .. 'strays', 0, most - 1)) do look(id) end
  local next, ids = unpack(redis.call('SSCAN', w.at_active, text_at(key) or '0', 'COUNT', most))
  if next == '0' then redis.call('DEL', key) else redis.call('SET', key, next) end
  for _, id in ipairs(ids) do look(id) end
  return found
end

-- Schedules on the wire. As in the original, each is an entry of `jobs:cron` under the name of the schedule,
-- with the job's JSON beside it. The definition that ticks is the engine's (`cron:<name>`). An entry of a
-- foreign client becomes such a definition when it is due. The score on the wire decides: if a client has
-- moved it, that is when the next tick is.

local function at_schedule(w, name)
  return w.prefix .. 'cron:' .. name
end

local function pack_fields(...)
  local parts = {}
  for _, field in ipairs({ ... }) do parts[#parts + 1] = struct.pack('>I4', #field) .. field end
  return table.concat(parts)
end

local function decoded(text)
  local read, value = pcall(cjson.decode, text or '')
  return read and type(value) == 'table' and value or {}
end

local function schedule_of(job)
  local schedule = decoded(job and job.kind == 'J' and json_raw(json_members(job.raw), 'schedule'))
  return type(schedule.cron) == 'string' and schedule or nil
end

-- An entry of a foreign client as a definition of the engine: timing, job, error; nil where no job belongs
-- to it.
local function defined_by(w, id)
  local job = wire_read(w, id)
  local schedule = schedule_of(job)
  if not schedule then
    return job and { timing = '', job = '', error = 'a schedule that cannot be read' }
  end
  local members = json_members(job.raw)
  json_set(members, 'schedule', '{}')
  local zone = type(schedule.timezone) == 'string' and schedule.timezone ~= ''
    and ',"zone":' .. json_quoted(schedule.timezone) or ''
  return { timing = '{"cron":' .. json_quoted(schedule.cron) .. zone .. '}',
    job = pack_fields('', pack_fields(ms_text(job.priority), '', json_text(members))), error = '' }
end

local function score_ms(score)
  return ms_text(math.max(0, math.floor(tonumber(score))))
end

-- Writes: turns an entry of a foreign client into a definition of the engine. The index before the hash, as
-- in schedule_put.
local function adopt_entry(w, id, next_ms, new)
  redis.call('ZADD', w.at_index, next_ms, id)
  redis.call('HSET', at_schedule(w, id), 'version',
    redis.call('HINCRBY', w.prefix .. 'stats', 'schedules', 1), 'timing', new.timing, 'policy', '{}',
    'job', new.job, 'enabled', '1', 'next_ms', next_ms, 'anchor_ms', next_ms, 'wire', '1', 'error', new.error)
end

-- Writes, before a schedule is changed: turns an entry of this name into a definition of the engine, unless
-- there is one.
local function wire_adopt_schedule(w, name)
  local score = redis.call('ZSCORE', w.at_cron, name)
  local new = score and redis.call('EXISTS', at_schedule(w, name)) == 0 and defined_by(w, name)
  if new then adopt_entry(w, name, score_ms(score), new) end
end

-- Adds an entry that no sweep has taken over yet to a page, as add_schedule does.
local function wire_add_entry(w, page, name)
  local score = redis.call('ZSCORE', w.at_cron, name)
  local new = score and defined_by(w, name)
  if not new then return end
  local next_ms = score_ms(score)
  for _, word in ipairs({ name, '0', new.timing, '{}', new.job, '1', next_ms, next_ms, '0', '', '0', '0',
      '0', new.error }) do
    page[#page + 1] = word
  end
end

-- A page of the names of all schedules by next tick, and how many there are. They are those of the engine's
-- index and, between them, the entries that no sweep has taken over yet.
local function wire_schedule_names(w, offset, limit)
  local entries, names, before = redis.call('ZDIFF', 2, w.at_cron, w.at_index, 'WITHSCORES'), {}, 0
  local places = {}
  for at = 1, #entries, 2 do
    local place = (at - 1) / 2 + redis.call('ZCOUNT', w.at_index, '-inf', entries[at + 1])
    if place >= offset + limit then break end
    if place < offset then before = before + 1 else places[place] = entries[at] end
  end
  local known = redis.call('ZRANGE', w.at_index, offset - before, offset - before + limit - 1)
  local taken = 0
  for place = offset, offset + limit - 1 do
    if not places[place] then taken = taken + 1 end
    names[#names + 1] = places[place] or known[taken]
  end
  return names, redis.call('ZCARD', w.at_index) + #entries / 2
end

local function note_next(w, name, next_ms)
  redis.call('HSET', at_schedule(w, name), 'next_ms', next_ms)
  redis.call('ZADD', w.at_index, next_ms, name)
end

-- Writes, before a schedule ticks: takes over what a foreign client has moved or removed meanwhile.
local function wire_settle_schedule(w, name)
  local known = own_words(at_schedule(w, name), 'wire', 'next_ms')
  -- A schedule that does not tick is not on the wire.
  if not known[1] or known[2] == '0' then return end
  local score = redis.call('ZSCORE', w.at_cron, name)
  if not score then
    redis.call('DEL', at_schedule(w, name))
    redis.call('ZREM', w.at_index, name)
  elseif score_ms(score) ~= known[2] then
    note_next(w, name, score_ms(score))
  end
end

local function wire_next_tick_ms(w, name)
  local known = own_words(at_schedule(w, name), 'wire', 'next_ms')
  if not known[1] or known[2] == '0' then return nil end
  local score = redis.call('ZSCORE', w.at_cron, name)
  return score and score_ms(score) or false
end

-- Writes: takes over entries of foreign clients when they are due. Returns the new ones, each with name,
-- version, next tick, anchor, timing and policy. The next sweep finds the others in the engine's own index.
local function wire_due_schedules(w, most)
  local now, due = ms_text(w.now_ms), {}
  local found = redis.call('ZRANGE', w.at_cron, '-inf', now, 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
  for at = 1, #found, 2 do
    local id, next_ms = found[at], score_ms(found[at + 1])
    local known = own_words(at_schedule(w, id), 'version', 'next_ms', 'error')
    local new = not known[1] and defined_by(w, id)
    if known[1] and known[3] == '' then
      if known[2] ~= next_ms then note_next(w, id, next_ms) end
    elseif not known[1] and not new then
      redis.call('ZREM', w.at_cron, id)
    elseif new and new.error == '' then
      adopt_entry(w, id, next_ms, new)
      due[#due + 1] = id
      for _, word in ipairs(own_words(at_schedule(w, id), 'version', 'next_ms', 'anchor_ms', 'timing',
          'policy')) do
        due[#due + 1] = word
      end
    else
      -- Its next tick cannot be computed: it is tried again in a minute, so that it does not block the
      -- others.
      redis.call('HSET', w.prefix .. 'aside', id, 'a schedule that cannot be read')
      redis.call('ZADD', w.at_cron, 'XX', ms_text(w.now_ms + 60000), id)
    end
  end
  return due
end

-- Writes: a schedule was put, has ticked (next_ms: its next one), was disabled or could not tick (0), or
-- removed (no `template`). Intervals and months are not on the wire: only the engine ticks them.
local function wire_scheduled(w, name, next_ms, given)
  local known = own_words(at_schedule(w, name), 'timing', 'error')
  local timing, entry = decoded(known[1]), wire_read(w, name)
  if not given then
    redis.call('ZREM', w.at_cron, name)
    if schedule_of(entry) then redis.call('DEL', at_data(w, name), at_status(w, name)) end
  elseif next_ms == 0 and known[2] and known[2] ~= '' then
    redis.call('ZADD', w.at_cron, 'XX', ms_text(w.now_ms + 60000), name)
  elseif next_ms == 0 or not timing.cron then
    redis.call('ZREM', w.at_cron, name)
  elseif schedule_of(entry) or not entry then
    local made_ms = entry and entry.enqueued_ms > 0 and entry.enqueued_ms or w.now_ms
    local members = json_members(job_json(w, name, unpack_fields(unpack_fields(given)[2]), made_ms))
    json_set(members, 'schedule', '{"cron":' .. json_quoted(timing.cron) .. ',"timezone":'
      .. json_quoted(timing.zone or 'UTC') .. '}')
    -- The job of a foreign client's entry is not changed.
    local adopted = unpack_fields(given)[1] == ''
    if not (entry and adopted) then
      redis.call('MSET', at_data(w, name), json_text(members), at_status(w, name), 'cron')
    end
    redis.call('HSET', at_schedule(w, name), 'wire', '1')
    redis.call('ZADD', w.at_cron, ms_text(next_ms), name)
  end
end

-- The schedule's own entry is waiting or active: a foreign client has enqueued it for this tick.
local function wire_admit(w, item)
  local name = string.match(item.id, '^cron:(.*):%d+$')
  if not name or not redis.call('ZSCORE', w.at_cron, name) then return nil end
  local there = redis.call('SISMEMBER', w.at_active, name) == 1 or redis.call('LPOS', w.at_waiting, name)
  return there and name or nil
end
