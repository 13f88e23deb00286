-- The wire format of BridgeMQ.
-- USES core/call: check_types
--      foreign/format: check_sets, json_members, json_raw, json_set, json_text, json_value

-- A job from its JSON, which a foreign client may have written. Null and values of another type count as
-- absent if the format can do without them. `why` is set if the job cannot run. `body` is what Python reads:
-- the JSON with null in place of the payload, and the payload's own bytes.
local function bridge_job(id, raw, members)
  local function corrupt(why) return { kind = 'corrupt', why = why, body = { '', '' }, raw = raw } end
  if not members then return corrupt('no JSON object') end
  local function object(name)
    local text = json_raw(members, name) or '{}'
    -- None of the objects that are read here is larger.
    if #text > 65536 or #text < 4 then return {} end
    local read, list = pcall(cjson.decode, '[' .. text .. ']')
    return read and type(list[1]) == 'table' and list[1] or {}
  end
  local function number(given, default)
    local found = tonumber(given)
    -- Neither nan nor outside the range in which doubles are exact.
    return found and found == found and math.abs(found) < 2 ^ 53 and math.floor(found) or default
  end
  local name, retry, limit = json_value(members, 'type'), object('retry'), object('rateLimit')
  if type(name) ~= 'string' or name == '' then return corrupt('it has no type') end
  local target, needs = object('target'), nil
  for _, category in ipairs({ 'stack', 'capabilities', 'region' }) do
    local wanted = target[category]
    if wanted == cjson.null then target[category] = nil end
    -- A single value in place of a list.
    if type(wanted) == 'string' then target[category] = { wanted } end
    if type(target[category] or {}) ~= 'table' then return corrupt('target.' .. category .. ' is no list') end
  end
  for _, parent in ipairs(object('dependsOn')) do
    if type(parent) == 'string' then
      needs = needs or {}
      needs[#needs + 1] = parent
    end
  end
  -- `retry.attempts` is the number of runs after the first one.
  local again = math.max(0, math.min(number(retry.attempts, 0), 999))
  local failures, priority = number(json_value(members, 'attempts'), 0),
    number(json_value(members, 'priority'), 5)
  local made_ms, payload = number(json_value(members, 'createdAt'), 0), json_raw(members, 'payload') or 'null'
  json_set(members, 'payload', 'null')
  return {
    kind = 'J', id = id, name = name, body = { json_text(members), payload }, raw = raw,
    failures = math.max(0, failures), attempts = again + 1,
    priority = math.max(1, math.min(priority, 10)), enqueued_ms = made_ms, due_ms = 0,
    result_ttl_ms = 86400000, needs = needs,
    target = target, concurrent = type(limit.maxConcurrent) == 'number' and limit.maxConcurrent or nil,
    per_minute = type(limit.maxPerMinute) == 'number' and limit.maxPerMinute or nil,
  }
end

-- Whether a worker matches a target. If a server is named, only that one does. Otherwise every category with
-- values must match: stack and region by one of their values. Capabilities match by one (`mode` any or
-- absent) or by all of them (any other mode, also null).
local function bridge_matches(target, worker)
  local server = target.server
  if server ~= nil and server ~= cjson.null and server ~= '' then return server == worker.server end
  local function among(wanted, own)
    if not wanted or #wanted == 0 then return true end
    for _, value in ipairs(wanted) do
      if value == own then return true end
    end
    return false
  end
  if not among(target.stack, worker.stack) or not among(target.region, worker.region) then return false end
  local wanted, met = target.capabilities or {}, 0
  for _, value in ipairs(wanted) do
    if worker.capabilities[value] then met = met + 1 end
  end
  local any = target.mode == nil or target.mode == 'any'
  return #wanted == 0 or (met > 0 and (any or met == #wanted))
end

local function at_data(w, id)
  return w.root .. 'jobs:data:' .. id
end

local function at_status(w, id)
  return w.root .. 'jobs:status:' .. id
end

local function at_lock(w, id)
  return w.root .. 'jobs:lock:' .. id
end

local function at_result(w, id)
  return w.root .. 'jobs:result:' .. id
end

local function at_progress(w, id)
  return w.root .. 'jobs:progress:' .. id
end

local function at_running(w, kind)
  return w.root .. 'ratelimit:concurrent:' .. kind
end

local function at_minute(w, kind)
  return w.root .. 'ratelimit:minute:' .. kind
end

-- The string under a key; nil for none and for a key of another type.
local function text_at(key)
  local found = redis.pcall('GET', key)
  return type(found) == 'string' and found or nil
end

-- A number as text for Redis and JSON, limited to the range in which doubles are exact.
local function ms_text(value)
  return string.format('%d', math.max(-EXACT_MAX, math.min(value, EXACT_MAX)))
end

-- As JSON.stringify writes it: cjson would escape the slash.
local function json_quoted(text)
  return (string.gsub(cjson.encode(text), '\\/', '/'))
end

local function wire_check(w)
  check_types({ w.at_delayed, w.at_cron, w.at_done }, { w.at_order }, { w.at_waiting, w.at_dead }, {})
  check_sets(w.at_active, w.at_paused, w.at_workers)
end

local function wire_read(w, id)
  local raw = redis.pcall('GET', at_data(w, id))
  if raw == false then return nil end
  if type(raw) ~= 'string' then
    return { kind = 'corrupt', why = 'its data is no string', body = { '', '' } }
  end
  return bridge_job(id, raw, json_members(raw))
end

local function wire_place(w, id)
  if redis.call('SISMEMBER', w.at_active, id) == 1 then return 'active' end
  if redis.call('ZSCORE', w.at_delayed, id) then return 'delayed' end
  local status = text_at(at_status(w, id))
  if status == 'completed' and not redis.call('ZSCORE', w.at_cron, id) then return 'done' end
  -- A requeue that was cut off may have left it in both lists.
  if status == 'dead' and redis.call('LPOS', w.at_dead, id) then return 'dead' end
  if redis.call('LPOS', w.at_waiting, id) then return 'waiting' end
  if redis.call('LPOS', w.at_dead, id) then return 'dead' end
  -- The original's own loop removes a job from the list before it locks it, and never adds it to the active
  -- ones.
  return text_at(at_lock(w, id)) and 'active' or nil
end

-- Writes. Priorities from 7 on go to the head, as with every client of the format.
local function push_waiting(w, id, priority)
  redis.call(priority >= 7 and 'LPUSH' or 'RPUSH', w.at_waiting, id)
end

-- Writes. The index orders equal times by id, so the order of arrival is kept in another key.
local function delay_job(w, id, due_ms)
  redis.call('ZADD', w.at_delayed, ms_text(due_ms), id)
  redis.call('HSET', w.at_order, id, redis.call('HINCRBY', w.at_order, '', 1))
end

-- The JSON of a new job. item.fields: priority, the JSON between the id and the time of the enqueue, and
-- the JSON after it; or '' and a whole job, as in the schedules of foreign clients.
local function job_json(w, id, fields, made_ms)
  if fields[2] ~= '' then
    return '{"jobId":' .. json_quoted(id) .. fields[2] .. ms_text(made_ms) .. fields[3]
  end
  local members = json_members(fields[3])
  json_set(members, 'jobId', json_quoted(id))
  json_set(members, 'createdAt', ms_text(made_ms))
  json_set(members, 'attempts', '0')
  return json_text(members)
end

-- The first parent of a new job of which nothing is known: the job would wait for it for ever (rule 25).
-- One that a foreign client writes with such a parent does wait, as the format has it.
local function wire_unknown_parent(w, item)
  if not string.find(item.fields[2], '"dependsOn":["', 1, true) then return nil end
  local raw = job_json(w, item.id, item.fields, w.now_ms)
  for _, parent in ipairs(bridge_job(item.id, raw, json_members(raw)).needs or {}) do
    if not text_at(at_status(w, parent)) and redis.call('EXISTS', at_data(w, parent),
        w.prefix .. 'gone:' .. parent) == 0 then
      return parent
    end
  end
  return nil
end

-- Writes. The data is written before the index. If a copy is cut off in between, the next one adds the id
-- again. An entry without data would be set aside by the next claim.
local function wire_add(w, item, due_ms)
  local later, data = due_ms > w.now_ms, job_json(w, item.id, item.fields, w.now_ms)
  redis.call('MSET', at_data(w, item.id), data, at_status(w, item.id), later and 'delayed' or 'waiting')
  if later then delay_job(w, item.id, due_ms) else push_waiting(w, item.id, tonumber(item.fields[1])) end
end

-- What the functions of BridgeMQ know in one call. Fields and functions whose names begin with `at_` are
-- keys. The comments of functions that write begin with "Writes".
local function wire(root, prefix, queue, layout, settings, now_ms)
  local w = { root = root, prefix = prefix, now_ms = now_ms, at_waiting = root .. 'jobs:waiting',
    at_active = root .. 'jobs:active', at_delayed = root .. 'jobs:delayed', at_cron = root .. 'jobs:cron',
    at_dead = root .. 'jobs:deadletter', at_paused = root .. 'queues:paused',
    at_workers = root .. 'workers:active', at_scheduler = root .. 'scheduler:lock',
    at_limited = prefix .. 'limited', at_order = prefix .. 'order', at_done = prefix .. 'done',
    at_index = prefix .. 'cron' }
  w.lists = { waiting = w.at_waiting, dead = w.at_dead }
  w.zsets = { delayed = w.at_delayed, done = w.at_done }
  return w
end
