-- Notifications: wake lists of workers, streams of callers that wait for the end of a job, the events of the
-- queue (append_events), and control messages.
-- USES core/claim: is_paused

-- Rule 22: a wake list holds at most one marker. It carries no job, so losing it costs at most one sweep
-- interval.
local function wake_push(wake)
  if redis.call('LLEN', wake) == 0 then redis.call('RPUSH', wake, '1') end
end

-- Set the markers for jobs that a claim leaves behind (rule 22). Jobs that this worker had to skip get none,
-- because it would only find them again; the next sweep wakes the other workers. A class without room gets
-- none. `open` is nil if the claim read no classes.
local function wake_served(prefix, classes, open, wakes)
  local looked = {}
  for _, class in ipairs(open or {}) do looked[class.name] = class end
  for _, name in ipairs(classes) do
    local class, ready = looked[name], redis.call('ZCARD', prefix .. 'ready:' .. name) > 0
    local claimable = ready and (not open or class and class.room > 0
      and (class.picked > 0 or not class.passed))
    wakes[prefix .. 'wake:' .. name] = claimable or nil -- anchor: claim-leaves-a-marker
  end
end

-- Publish a control message to the workers of a queue, or with `worker` to those of that name
-- (engine/ops/workers.py). Their next calls would tell them the same. So nothing depends on a message, and an
-- error, such as a missing permission, fails nothing.
local function notify_workers(prefix, worker, text)
  redis.pcall('PUBLISH', prefix .. 'control' .. (worker and ':' .. worker or ''), text)
end

-- Notify workers of a change of their settings, or of a new class with a target. A worker that knows version
-- n blocks on the list news:<n>. The worker that pops the marker reads the change and pushes the marker again
-- (read_worker_updates.lua). So one marker reaches all of them, and ends in a list that no worker reads any
-- more. Workers that are busy or paused get the version by a control message.
local function notify_settings(prefix, now_ms)
  local version = tonumber(redis.call('HGET', prefix .. 'settings', 'version') or 0)
  local news = prefix .. 'news:' .. string.format('%d', version)
  if redis.call('LLEN', news) == 0 then redis.call('RPUSH', news, '1') end
  redis.call('PEXPIREAT', news, now_ms + 60000)
  redis.call('HSET', prefix .. 'settings', 'version', string.format('%d', version + 1))
  notify_workers(prefix, nil, 'news ' .. string.format('%d', version + 1))
end

-- Wake the callers that wait for the end of a job, each by a stream that its look.lua call has created. A
-- caller that misses it finds the end when it polls again. So an error here must not fail the script that has
-- ended the job.
local function notify_waiters(prefix, id)
  local key = prefix .. 'waits:' .. id
  local waiters = redis.pcall('GET', key)
  if type(waiters) ~= 'string' then return end
  for waiter in string.gmatch(waiters, '%S+') do
    redis.pcall('XADD', prefix .. 'wait:' .. waiter, 'NOMKSTREAM', 'MAXLEN', '~', 1000, '*', 'id', id)
  end
  redis.pcall('DEL', key)
end

-- Append events to the queue's event stream, if it keeps one (set_events.lua). They are a script's last
-- writes, so a copy that changes nothing appends nothing. Everything else is done by then, so an error here
-- must not fail the script. `events`: keep, and for each event: kind, job, name, detail.
local function append_events(stream, events)
  if not events.keep then return end
  for _, event in ipairs(events) do
    redis.pcall('XADD', stream, 'MAXLEN', '~', events.keep, '*', 'kind', event[1], 'job', event[2], 'name',
      event[3] or '', 'detail', string.sub(event[4] or '', 1, 500))
  end
end

-- Whether this class has never held a job; reads only. `target` is what it requires of a worker, '' =
-- nothing. Raises for a queue that has too many classes, because each sweep reads all of them.
local function new_class(prefix, classes, class, target)
  if redis.call('HEXISTS', classes, class) == 1 then return false end
  if redis.call('HLEN', classes) >= 10000 then error({ err = 'IRONCLAIM more than 10000 classes' }) end
  if target ~= '' then
    redis.call('HLEN', prefix .. 'routed')
    redis.call('HLEN', prefix .. 'settings')
  end
  return true
end

-- Record a class before its first job is written. Workers are notified of a new class with a target, because
-- none blocks on its wake list yet. It is listed under its name as well, because pauses and limits apply by
-- name.
local function note_class(prefix, classes, class, target, now_ms)
  if target ~= '' then
    local name = string.match(class, '^[^@]*')
    local routed = redis.call('HGET', prefix .. 'routed', name) or ''
    if not string.find(routed .. ' ', ' ' .. class .. ' ', 1, true) then
      redis.call('HSET', prefix .. 'routed', name, routed .. ' ' .. class)
    end
    notify_settings(prefix, now_ms) -- anchor: new-class-is-announced
  end
  redis.call('HSET', classes, class, target)
end

-- Push the missing markers of the classes of one name: after its pause has ended, or its limit has changed.
local function wake_name(prefix, name, now_ms)
  if is_paused(prefix .. 'paused', name, now_ms) then return end
  for class in string.gmatch(name .. (redis.call('HGET', prefix .. 'routed', name) or ''), '%S+') do
    if redis.call('ZCARD', prefix .. 'ready:' .. class) > 0 then wake_push(prefix .. 'wake:' .. class) end
  end
end

-- Push the missing markers (rule 22): one for each class with ready lanes that is not paused. One call checks
-- up to 512 classes, which a small hash has. Of more classes each call checks a page of some 200.
local function wake_classes(prefix, now_ms)
  local sweep, some_paused = prefix .. 'sweep', redis.call('EXISTS', prefix .. 'paused') == 1
  local from = redis.call('HGET', sweep, 'wake_from')
  local page = redis.call('HSCAN', prefix .. 'classes', from or '0', 'COUNT', 200)
  for at = 1, #page[2], 2 do
    local class = page[2][at]
    if redis.call('ZCARD', prefix .. 'ready:' .. class) > 0
        and not (some_paused and is_paused(prefix .. 'paused', class, now_ms)) then
      wake_push(prefix .. 'wake:' .. class) -- anchor: sweep-leaves-a-marker
    end
  end
  if page[1] ~= '0' then redis.call('HSET', sweep, 'wake_from', page[1]) elseif from then redis.call('HDEL',
      sweep, 'wake_from') end
end
