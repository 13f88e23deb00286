-- Who is woken and told: workers of a class, those who wait for the end of a job, readers of events and of the news.

-- Rule 22: at most one marker in a wake list. It carries no job, so losing it costs one sweep interval and nothing else.
local function wake_push(wake)
  if redis.call('LLEN', wake) == 0 then redis.call('RPUSH', wake, '1') end
end

-- Markers for what a claim leaves behind (rule 22). None for what this worker had to pass by: it would only come back to it, and
-- the next sweep makes one for the others; none for a class without room. `open` is nil when the claim did not look.
local function wake_served(prefix, classes, open, wakes)
  local looked = {}
  for _, class in ipairs(open or {}) do looked[class.name] = class end
  for _, name in ipairs(classes) do
    local class, ready = looked[name], redis.call('ZCARD', prefix .. 'ready:' .. name) > 0
    local claimable = ready and (not open or class and class.room > 0 and (class.picked > 0 or not class.passed))
    wakes[prefix .. 'wake:' .. name] = claimable or nil -- anchor: claim-leaves-a-marker
  end
end

-- Something has changed that workers learn once: a class with a target, or a setting of theirs. Who knows the version before this
-- one blocks on a list that bears its number; whoever takes the marker learns what is new and leaves one for the next
-- (news.lua), so a single marker reaches all of them and then lies where nobody waits any more.
local function tell_news(prefix, now_ms)
  local version = tonumber(redis.call('HGET', prefix .. 'settings', 'version') or 0)
  local news = prefix .. 'news:' .. string.format('%d', version)
  if redis.call('LLEN', news) == 0 then redis.call('RPUSH', news, '1') end
  redis.call('PEXPIREAT', news, now_ms + 60000)
  redis.call('HSET', prefix .. 'settings', 'version', string.format('%d', version + 1))
end

-- Wake those who wait for the end of a job, each by a stream of its own that its look has made (look.lua). What cannot be told is found
-- by the next look, so nothing here may fail the script that has ended the job.
local function tell_ended(prefix, id)
  local key = prefix .. 'waits:' .. id
  local tokens = redis.pcall('GET', key)
  if type(tokens) ~= 'string' then return end
  for token in string.gmatch(tokens, '%S+') do
    redis.pcall('XADD', prefix .. 'wait:' .. token, 'NOMKSTREAM', 'MAXLEN', '~', 1000, '*', 'id', id)
  end
  redis.pcall('DEL', key)
end

-- Write down what has happened, where the queue keeps its events (set_events.lua): a script's last writes, so that a copy which changes
-- nothing tells nothing. All else is done by then, so nothing here may fail the script. `events`: keep, and for each event: kind, job,
-- name, detail.
local function tell_events(stream, events)
  for _, event in ipairs(events) do
    redis.pcall('XADD', stream, 'MAXLEN', '~', events.keep, '*', 'kind', event[1], 'job', event[2], 'name', event[3] or '',
      'detail', string.sub(event[4] or '', 1, 500))
  end
end

-- Whether this class has never held a job; reads only. `target` is what it wants of a worker, '' = nothing. Raises for a
-- queue that has too many classes: each sweep looks at all of them.
local function new_class(prefix, classes, class, target)
  if redis.call('HEXISTS', classes, class) == 1 then return false end
  if redis.call('HLEN', classes) >= 10000 then error({ err = 'IRONCLAIM more than 10000 classes' }) end
  if target ~= '' then
    redis.call('HLEN', prefix .. 'routed')
    redis.call('HLEN', prefix .. 'settings')
  end
  return true
end

-- Remember a class before its first job is there. Nobody waits for the marker of one that has a target, so the workers are told of
-- it, and it is kept with its name, for what is paused and limited by name.
local function note_class(prefix, classes, class, target, now_ms)
  if target ~= '' then
    local name = string.match(class, '^[^@]*')
    local routed = redis.call('HGET', prefix .. 'routed', name) or ''
    if not string.find(routed .. ' ', ' ' .. class .. ' ', 1, true) then redis.call('HSET', prefix .. 'routed', name, routed .. ' ' .. class) end
    tell_news(prefix, now_ms) -- anchor: new-class-is-announced
  end
  redis.call('HSET', classes, class, target)
end

-- Re-arm the markers (rule 22): one for each class with ready lanes that is not paused.
local function wake_classes(prefix, now_ms)
  for _, class in ipairs(redis.call('HKEYS', prefix .. 'classes')) do
    if redis.call('ZCARD', prefix .. 'ready:' .. class) > 0 and not is_paused(prefix .. 'paused', class, now_ms) then
      wake_push(prefix .. 'wake:' .. class) -- anchor: sweep-leaves-a-marker
    end
  end
end
