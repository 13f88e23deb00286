-- The wire format of Bananas, with JSON and times as the Go programs write them.
-- USES core/call: check_types
--      foreign/format: json_members, json_set, json_text, rfc3339

local function at_job(w, id)
  return w.root .. 'job:' .. id
end

local function at_result(w, id)
  return w.root .. 'result:' .. id
end

local function at_notify(w, id)
  return w.root .. 'result:notify:' .. id
end

local function at_cron_lock(w, name)
  return w.root .. (w.documented and 'cron:lock:' or 'schedule_lock:') .. name
end

local function at_cron_state(w, name)
  return w.root .. (w.documented and 'cron:state:' or 'schedules:') .. name
end

-- The list in which a job waits.
local function at_list(w, route, priority)
  if w.live and route == 'default' then return w.root .. 'queue:' .. priority end
  return w.root .. 'route:' .. route .. ':queue:' .. priority
end

-- All lists where jobs of this route and priority may be. The live programs' scheduler moves jobs of the
-- default route to a list that none of those programs reads; here it is read.
local function lists_of(w, route, priority)
  local lists = { at_list(w, route, priority) }
  if w.live and route == 'default' then lists[2] = w.root .. 'route:default:queue:' .. priority end
  return lists
end

-- The routing keys that the engine has seen, the default one first. The format keeps no list of them.
local function known_routes(w)
  local routes = redis.call('SMEMBERS', w.prefix .. 'routes')
  table.sort(routes)
  table.insert(routes, 1, 'default')
  return routes
end

local function note_route(w, route)
  if route ~= 'default' then redis.call('SADD', w.prefix .. 'routes', route) end
end

-- Schedules on the wire: the state that the live programs' schedulers keep and read, and the lock that
-- excludes them.

-- Whether another scheduler has run this tick, or is about to: the live programs fire up to a second early.
local function wire_may_tick(w, name, at_ms)
  local holder = redis.pcall('GET', at_cron_lock(w, name))
  if type(holder) == 'string' and not string.find(holder, '^ironclaim:') then return false end
  local last = redis.pcall('HGET', at_cron_state(w, name), 'last_run')
  local last_ms = type(last) == 'string' and rfc3339_ms(last)
  -- The engine's schedules may tick more often than once a second, so its own state is more precise.
  local own_ms = tonumber(redis.call('HGET', w.prefix .. 'cron:' .. name, 'last_ms') or 0)
  return not last_ms or last_ms < at_ms - 1000 or last_ms == math.floor(own_ms / 1000) * 1000
end

local function wire_scheduled(w, name, next_ms)
  if next_ms and tonumber(next_ms) and tonumber(next_ms) > 0 then
    redis.call('HSET', at_cron_state(w, name), 'next_run', go_time(tonumber(next_ms), true))
  else
    redis.call('HDEL', at_cron_state(w, name), 'next_run')
  end
end

-- The lock stays for two seconds, so that a scheduler which found the tick due before it was run here is
-- too late. It does not stay longer, so that a scheduler of the live programs can take over when this one
-- stops.
local function wire_ticked(w, name, at_ms, next_ms, id)
  local state = at_cron_state(w, name)
  redis.call('SET', at_cron_lock(w, name), 'ironclaim:' .. id, 'EX', 2)
  redis.call('HSET', state, 'last_run', go_time(at_ms, true), 'last_success', go_time(w.now_ms, true))
  redis.call('HDEL', state, 'last_error')
  redis.call('HINCRBY', state, 'run_count', 1)
  wire_scheduled(w, name, next_ms)
end

-- A time as Go writes it: the fraction without trailing zeros, none with `whole`. `nanos`: six digits below
-- the millisecond.
local function go_time(ms, whole, nanos)
  if whole then return rfc3339(ms, true) end
  local fraction = string.gsub(string.format('.%03d', ms % 1000) .. (nanos or ''), '%.?0*$', '')
  return (string.gsub(rfc3339(ms, true), 'Z$', fraction .. 'Z'))
end

local function wire_check(w)
  local lists = { w.processing, w.dead }
  for _, priority in ipairs(w.priorities) do lists[#lists + 1] = at_list(w, 'default', priority) end
  check_types({ w.scheduled, w.done }, {}, lists)
end

-- The format has no duplicates. A key of another type raises an error before anything is
-- written.
local function wire_admit(w, item)
  check_types({}, {}, { at_list(w, item.fields[3], item.fields[2]) }, { at_job(w, item.id) })
end

-- The job's JSON: reads the members that the engine needs, and rewrites single members. All others keep their
-- spelling, including the payload's bytes (cjson would round numbers and turn empty arrays into objects).

-- A text as a JSON string, escaped as in Go; bytes that are not UTF-8 become U+FFFD.
local function go_quoted(given)
  local whole = string.gsub(given, '[%c"\\<>&\127]', function(char)
    local short = ({ ['"'] = '\\"', ['\\'] = '\\\\', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t',
    ['\8'] = '\\b', ['\12'] = '\\f', ['\127'] = '\127' })[char]
    return short or string.format('\\u%04x', string.byte(char))
  end)
  whole = string.gsub(whole, '[\128-\255]+', function(run)
    local parts, at = {}, 1
    while at <= #run do
      local lead = string.byte(run, at)
      local size = lead >= 240 and lead <= 244 and 4 or lead >= 224 and lead < 240 and 3
      or lead >= 194 and lead < 224 and 2 or 0
      local piece = string.sub(run, at, at + size - 1)
      local second = string.byte(piece, 2) or 0
      local whole_char = size > 0 and #piece == size and not string.find(piece, '[\192-\255]', 2)
        and not (lead == 224 and second < 160) and not (lead == 237 and second > 159)
        and not (lead == 240 and second < 144) and not (lead == 244 and second > 143)
      if not whole_char then piece, size = '\239\191\189', 1 end
      if piece == '\226\128\168' then
        piece = '\\u2028'
      elseif piece == '\226\128\169' then
        piece = '\\u2029'
      end
      parts[#parts + 1], at = piece, at + size
    end
    return table.concat(parts)
  end)
  return '"' .. whole .. '"'
end

-- What is wrong with the members that a worker needs, nil if nothing. A program in Go cannot have written
-- such a job.
local function wrong_member(job)
  for _, name in ipairs({ 'id', 'name', 'description', 'status', 'priority', 'routing_key', 'error' }) do
    local kind = job[name] == cjson.null and 'null' or type(job[name])
    if job[name] ~= nil and kind ~= 'string' and kind ~= 'null' then
      return name .. ' is a ' .. kind .. ', it must be a string'
    end
  end
  for _, name in ipairs({ 'attempts', 'max_retries' }) do
    local value = job[name]
    if value ~= nil and value ~= cjson.null and (type(value) ~= 'number' or value ~= math.floor(value)
        or math.abs(value) > 2 ^ 53) then
      return name .. ' is no whole number'
    end
  end
  if type(job.name) ~= 'string' or job.name == '' then return 'it has no name' end
  return nil
end

-- The members that the engine needs, or nil and why the text is no job.
local function open_job(body)
  if not string.find(body, '^%s*{') then return nil, 'it is no JSON object' end
  local ok, job = pcall(cjson.decode, body)
  if not ok then return nil, (string.gsub(tostring(job), '^.-:%d+: ', '')) end
  -- cjson reads nothing behind a zero byte, and takes nan(1) for a number: no member of those can be changed.
  if string.find(body, '[%z(]') and not json_members(body) then return nil, 'it is no JSON object' end
  local why = wrong_member(job)
  if why then return nil, why end
  for name, value in pairs(job) do
    if value == cjson.null then job[name] = nil end
  end
  return job
end

-- The text with some members changed: name -> JSON text, or false to remove the member. A new member is put
-- behind the one that Go writes before it.
local function with_members(body, changes)
  local order = { 'id', 'name', 'description', 'payload', 'status', 'priority', 'created_at', 'updated_at',
    'scheduled_for', 'attempts', 'max_retries', 'error' }
  local members, after = json_members(body), false
  for _, name in ipairs(order) do
    if changes[name] then json_set(members, name, changes[name], after) end
    if members.named[name] then after = name end
  end
  -- Removed at the end, because a new member may come behind a removed one.
  for name, value in pairs(changes) do
    if value == false and members.named[name] then members.named[name].raw = false end
  end
  return json_text(members)
end

-- A time in RFC 3339 as ms since 1970; nil for any other text.
local function rfc3339_ms(text)
  local year, month, day, hour, minute, second, rest =
    string.match(text or '', '^(%d%d%d%d)-(%d%d)-(%d%d)[Tt ](%d%d):(%d%d):(%d%d)(.*)$')
  if not year then return nil end
  local fraction, zone = string.match(rest, '^(%.%d+)(.*)$')
  zone = zone or rest
  local sign, zone_hour, zone_minute = string.match(zone, '^([+-])(%d%d):(%d%d)$')
  if not sign and zone ~= 'Z' and zone ~= 'z' then return nil end
  -- Days since 1970, in years that begin with March so that leap days come last.
  local y, m = tonumber(year), tonumber(month)
  if m <= 2 then y = y - 1 end
  local of_year = math.floor((153 * ((m + 9) % 12) + 2) / 5) + tonumber(day) - 1
  local days = 365 * y + math.floor(y / 4) - math.floor(y / 100) + math.floor(y / 400) + of_year - 719468
  local offset_s = sign and (sign == '-' and -1
    or 1) * (tonumber(zone_hour) * 3600 + tonumber(zone_minute) * 60) or 0
  local seconds = days * 86400 + tonumber(hour) * 3600 + tonumber(minute) * 60 + tonumber(second) - offset_s
  return seconds * 1000 + math.floor(tonumber('0' .. (fraction or '')) * 1000)
end

-- What the functions of Bananas know in one call (engine/models/foreign/bananas.py describes the keys). The
-- layouts differ in the lists of the default route (`live`) and in the keys of schedules (`document`).
-- settings: adopt_after_ms, and seconds to live of completed and failed jobs and of the results of both.
local function wire(root, prefix, queue, layout, settings, now_ms)
  local numbers = {}
  for word in string.gmatch(settings, '%d+') do numbers[#numbers + 1] = tonumber(word) end
  return { root = root, prefix = prefix, now_ms = now_ms, live = layout == 'live',
    documented = layout == 'document', processing = root .. 'queue:processing', dead = root .. 'queue:dead',
    scheduled = root .. 'queue:scheduled', priorities = { 'high', 'normal', 'low' },
    number = { high = 8, normal = 5, low = 2 },
    -- A key of the engine, because the format keeps no list of completed jobs: the last 1,000 that a worker
    -- of the engine has finished.
    done = prefix .. 'done', adopt_after_ms = numbers[1] or 0, done_s = numbers[2] or 86400,
    dead_s = numbers[3] or 604800, result_s = numbers[4] or 3600, error_s = numbers[5] or 86400 }
end
