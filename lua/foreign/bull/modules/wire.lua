-- The wire format of Bull 1.0.
-- USES core/call: check_types
--      foreign/format: check_sets

-- Reads of a job's hash, whichever client has written it, and of its place.

-- As the original reads numbers: the whole number at the start of a text, or `otherwise`.
local function whole_of(text, otherwise, least, most)
  local number = tonumber(string.match(text or '', '^%s*([+-]?%d+)'))
  return number and math.max(least, math.min(number, most)) or otherwise
end

-- Rule 1. check_types does not check sets.
local function wire_check(w)
  check_types({ w.keys.delayed }, {}, { w.keys.wait, w.keys.paused, w.keys.active },
    { w.keys.id, w.keys.meta })
  check_sets(w.keys.completed, w.keys.failed)
end

-- An id whose hash would be a key of the queue or of the engine: such a key is never read or written as a
-- job.
local function reserved_id(w, id)
  local key = w.root .. id
  for _, own in pairs(w.keys) do
    if key == own then return true end
  end
  return id == '' or id == 'lock' or string.sub(id, -5) == ':lock' or string.sub(id, 1, 9) == 'ironclaim'
end

local function is_hash(w, id)
  return not reserved_id(w, id) and redis.call('TYPE', w.root .. id).ok == 'hash'
end

local function wire_read(w, id)
  if reserved_id(w, id) then
    return { kind = 'corrupt', why = 'the id is that of a key of the queue', body = '' }
  end
  local found = redis.pcall('HMGET', w.root .. id, 'data', 'opts', 'attempts', 'timestamp', 'attemptsMade')
  if found.err then
    return { kind = 'corrupt', why = 'its key is a ' .. redis.call('TYPE', w.root .. id).ok .. ', not a hash',
      body = '' }
  end
  local data, text = found[1], found[2] or '{}'
  if not data then
    if redis.call('EXISTS', w.root .. id) == 0 then return nil end
    return { kind = 'corrupt', why = 'the hash has no data', body = '' }
  end
  local body = { data, text, found[3] or '', found[4] or '' }
  local fine, opts = pcall(cjson.decode, text)
  if not fine then return { kind = 'corrupt', why = 'opts are no JSON', body = body } end
  if type(opts) ~= 'table' then opts = {} end
  local name = type(opts.name) == 'string' and opts.name ~= '' and opts.name or '__default__'
  local lifo = opts.lifo
  return { kind = 'J', name = name, body = body, failures = whole_of(found[5], 0, 0, 2147483647),
    attempts = whole_of(found[3], 1, 1, 2147483647),
    priority = 5, enqueued_ms = whole_of(found[4], 0, 0, 140737488355328), due_ms = 0,
    lifo = lifo and lifo ~= cjson.null and lifo ~= 0 and lifo ~= '' }
end

local function is_waiting(w, id)
  return redis.call('LPOS', w.keys.wait, id) or redis.call('LPOS', w.keys.paused, id)
end

-- In the order of the original's getState.
local function wire_place(w, id)
  if redis.call('SISMEMBER', w.keys.completed, id) == 1 then return 'done' end
  if redis.call('SISMEMBER', w.keys.failed, id) == 1 then return 'dead' end
  if redis.call('ZSCORE', w.keys.delayed, id) then return 'delayed' end
  if redis.call('LPOS', w.keys.active, id) then return 'active' end
  return is_waiting(w, id) and 'waiting' or nil
end

-- A job that is in no structure; the original also calls it stuck. Its resume and its pause lose some.
local function wire_stuck(w, id)
  return is_hash(w, id) and not wire_place(w, id)
end

-- Whether a lock is this engine's: fence, incarnation and counter. The original writes no such value.
local function engine_lock(lock)
  return type(lock) == 'string' and string.find(lock, '^%d+:%w+:%d+$') ~= nil
end

local function wire_locked(w, id)
  local lock = redis.pcall('GET', w.root .. id .. ':lock')
  return lock and not engine_lock(lock)
end

local function wire_mine(w, id, token)
  local lock = redis.pcall('GET', w.root .. id .. ':lock')
  return (not lock or lock == token) and redis.call('LPOS', w.keys.active, id) and true or false
end

-- Delayed jobs: a score is the time in ms times 4096, plus the low 12 bits of the id.

local function score_time(score)
  return math.floor(tonumber(score) / 4096)
end

-- The time (ms) of a score, limited to valid times.
local function bounded_time(score)
  return math.max(0, math.min(score_time(score), 140737488355328))
end

-- Members from the least score to `most`, as { id, time }.
local function delayed_between(w, from, to, limit)
  local flat = redis.call('ZRANGEBYSCORE', w.keys.delayed, from, to, 'WITHSCORES', 'LIMIT', 0, limit)
  local found = {}
  for at = 1, #flat, 2 do
    found[#found + 1] = { id = flat[at], time = score_time(flat[at + 1]),
      number = tonumber(string.match(flat[at], '^%d+$')) }
  end
  return found
end

-- Due jobs, first in, first out among equal times: sorted by the whole id, because by its low 12 bits 4096
-- would come before 4095. Ids that are no numbers keep the order of the set. If more than 4096 jobs have
-- the same time, they are sorted 4096 at a time.
local function wire_due(w, most)
  local found = delayed_between(w, '-inf', string.format('(%.0f', (w.now_ms + 1) * 4096), most)
  if #found == most then
    local time, whole = found[most].time, {}
    for _, member in ipairs(found) do
      if member.time < time then whole[#whole + 1] = member end
    end
    local first, last = string.format('%.0f', time * 4096), string.format('(%.0f', (time + 1) * 4096)
    if time < 0 then first, last = '-inf', '(0' end
    for _, member in ipairs(delayed_between(w, first, last, 4096)) do whole[#whole + 1] = member end
    found = whole
  end
  for at, member in ipairs(found) do member.at = at end
  table.sort(found, function(one, other)
    if one.time ~= other.time then return one.time < other.time end
    if one.number and other.number and one.number ~= other.number then return one.number < other.number end
    if (one.number == nil) ~= (other.number == nil) then return one.number == nil end
    return one.at < other.at
  end)
  local ids = {}
  for at = 1, math.min(most, #found) do ids[at] = found[at].id end
  return ids
end

local function wire_next_due_ms(w)
  local score = redis.call('ZRANGE', w.keys.delayed, 0, 0, 'WITHSCORES')[2]
  return score and bounded_time(score) or nil
end

local function wire_due_at(w, id)
  local score = redis.call('ZSCORE', w.keys.delayed, id)
  return score and bounded_time(score) or nil
end

-- `redo`: a copy that was cut off may have put it into its list already.
local function wire_promote(w, id, redo)
  if not is_hash(w, id) then
    redis.call('ZREM', w.keys.delayed, id)
    return false
  end
  if not (redo and is_waiting(w, id)) then push_waiting(w, id, 'LPUSH') end
  redis.call('HSET', w.root .. id, 'delay', '0')
  redis.call('ZREM', w.keys.delayed, id)
  redis.call('LREM', w.keys.active, 0, id)
  -- Timers of the original sleep until the last published time.
  local score = redis.call('ZRANGE', w.keys.delayed, 0, 0, 'WITHSCORES')[2]
  if score and tonumber(score) / 4096 > w.now_ms then
    redis.call('PUBLISH', w.keys.delayed, string.format('%.17g', tonumber(score) / 4096))
  end
  return true
end

-- Writes for jobs that are added, run and end.

-- While the queue is paused no job may be put into `wait`. The original's promotion and retry do so
-- nevertheless; those jobs run despite the pause, or are lost with the next resume.
local function waiting_list(w)
  return redis.call('EXISTS', w.keys.meta) == 1 and w.keys.paused or w.keys.wait
end

-- Jobs are taken from the right.
local function push_waiting(w, id, command)
  redis.call(command, waiting_list(w), id)
  redis.call('PUBLISH', w.keys.jobs, id)
end

local function leave_active(w, id)
  redis.call('LREM', w.keys.active, 0, id)
  if not wire_locked(w, id) then redis.call('DEL', w.root .. id .. ':lock') end
end

-- The low bits of an id that is no number are 0, as in the original.
local function delay_job(w, id, due_ms)
  local low = string.find(id, '^%d+$') and tonumber(id) % 4096 or 0
  -- From 2039 on a double has no room for all of those bits. A score that would be rounded up to the next
  -- millisecond is rounded down.
  local step = 1
  while due_ms * 4096 >= 9007199254740992 * step do step = step * 2 end
  local score = due_ms * 4096 + (low - low % step)
  redis.call('ZADD', w.keys.delayed, string.format('%.0f', score), id)
  redis.call('PUBLISH', w.keys.delayed, string.format('%.17g', score / 4096))
end

-- The hash before the index: no client can handle an id without a hash. If the call is cut off in between,
-- its repeat puts the id into its place.
local function wire_add(w, item, due_ms)
  local data, opts, rest, attempts, timestamp, lifo = unpack(item.fields)
  local delay = item.wait_ms > 0 and item.wait_ms or math.max(0, due_ms - w.now_ms)
  -- The format stores a delay, so a due time is written as the delay until then.
  if rest ~= '' then opts = opts .. string.format('%.0f', delay) .. rest end
  redis.call('HSET', w.root .. item.id, 'data', data, 'opts', opts, 'progress', '0', 'delay',
    string.format('%.0f', delay), 'timestamp',
    timestamp ~= '' and timestamp or string.format('%.0f', w.now_ms), 'attempts', attempts, 'attemptsMade',
    '0', 'stacktrace', '[]', 'returnvalue', 'null')
  if due_ms > w.now_ms then
    delay_job(w, item.id, due_ms)
  else
    push_waiting(w, item.id, lifo == '1' and 'RPUSH' or 'LPUSH')
  end
end

local function wire_take(w, id, job, place, lease)
  -- A second entry of a job that has ended, as a check for stalled jobs makes them.
  if redis.call('SISMEMBER', w.keys.completed, id) == 1
      or redis.call('SISMEMBER', w.keys.failed, id) == 1 then
    redis.call('LREM', w.keys.wait, -1, id)
    return false
  end
  if redis.call('LINDEX', w.keys.wait, -1) == id then
    redis.call('RPOPLPUSH', w.keys.wait, w.keys.active)
  else
    if not redis.call('LPOS', w.keys.wait, id, 'RANK', -1) then return false end
    redis.call('LPUSH', w.keys.active, id)
    redis.call('LREM', w.keys.wait, -1, id)
  end
  wire_extend(w, id, lease)
  return true
end

local function wire_extend(w, id, lease)
  -- Half a lease longer than the lease. The engine's sweeps wait as long after a stall (rule 11), and so
  -- must the original's check for stalled jobs.
  redis.call('SET', w.root .. id .. ':lock', lease.token, 'PX', string.format('%.0f', lease.lease_ms * 1.5))
end

-- A job that the engine leases is in the engine's `active` until all is done, so its id leaves the wire's
-- `active` first. If the call is cut off in between, the job is in no list, and a sweep brings it back. The
-- job of a foreign client has no such entry: its id leaves last, and must not be added twice.
local function wire_back(w, id)
  local place, leased = wire_place(w, id), redis.call('ZSCORE', w.prefix .. 'active', id)
  if leased then leave_active(w, id) end
  if (place == nil or place == 'active') and (leased or not is_waiting(w, id)) then
    push_waiting(w, id, 'RPUSH')
  end
  if not leased then leave_active(w, id) end
end

local function wire_done(w, id, job, value, took_ms)
  if is_hash(w, id) then
    -- The original writes an empty text where there is no value. A repeat without a value keeps the one
    -- that is there.
    local known = redis.call('HGET', w.root .. id, 'returnvalue') or 'null'
    if value or known == 'null' then redis.call('HSET', w.root .. id, 'returnvalue', value or '') end
    redis.call('SADD', w.keys.completed, id)
  end
  leave_active(w, id)
end

-- A text as a JSON string, escaped as in the original.
local function bull_quoted(text)
  local short = { ['"'] = '\\"', ['\\'] = '\\\\', ['\b'] = '\\b', ['\f'] = '\\f', ['\n'] = '\\n',
    ['\r'] = '\\r', ['\t'] = '\\t' }
  return '"' .. string.gsub(text, '[%z\1-\31"\\]',
    function(one) return short[one] or string.format('\\u%04x', string.byte(one)) end) .. '"'
end

-- Append one stack trace; the earlier ones keep their bytes, unless the value is no array.
local function note_failure(w, id, failure)
  local failures = string.format('%.0f', failure.failures)
  if failure.redo and redis.call('HGET', w.root .. id, 'attemptsMade') == failures then return end
  local text = failure.error or ''
  if failure.trace and failure.trace ~= '' then text = text .. '\n' .. failure.trace end
  local traces = redis.call('HGET', w.root .. id, 'stacktrace') or ''
  local fine, list = pcall(cjson.decode, traces)
  local inside = fine and type(list) == 'table' and string.match(traces, '^%s*%[(.*)%]%s*$')
  if not inside or string.find(inside, '^%s*$') then inside = '' else inside = inside .. ',' end
  redis.call('HSET', w.root .. id, 'attemptsMade', failures, 'stacktrace',
    '[' .. inside .. bull_quoted(text) .. ']')
end

local function wire_again(w, id, job, failure)
  local place = failure.redo and wire_place(w, id)
  if is_hash(w, id) and (not place or place == 'active') then
    note_failure(w, id, failure)
    leave_active(w, id)
    if failure.due_ms > w.now_ms then
      delay_job(w, id, failure.due_ms)
    else
      push_waiting(w, id, job.lifo and 'RPUSH' or 'LPUSH')
    end
  else
    leave_active(w, id)
  end
end

local function wire_bury(w, id, job, failure)
  if is_hash(w, id) then
    note_failure(w, id, failure)
    redis.call('SADD', w.keys.failed, id)
  end
  leave_active(w, id)
end

-- The format has no ends of a job but completed and failed, so the job is deleted.
local function wire_drop(w, id, job, outcome)
  redis.call('DEL', w.root .. id)
  leave_active(w, id)
end

-- The wire holds progress as one number, without a time; that of a new job is 0.
local function wire_progress(w, id, percent)
  local text = is_hash(w, id) and redis.call('HGET', w.root .. id, 'progress') or '0'
  local number = string.match(text, '^-?[%d.eE+-]+$') and tonumber(text)
  return number ~= tonumber(percent or 0) and number or nil
end

local function wire_noted(w, id, job, body)
  local percent = string.match(body, '"percent":([%d.eE+-]+)')
  if percent and is_hash(w, id) then redis.call('HSET', w.root .. id, 'progress', percent) end
end

-- Clients that list `failed` cannot read an id without a hash: such an id goes to a hash of the engine.
local function wire_set_aside(w, id, place, why)
  if is_hash(w, id) then
    local made = tonumber(redis.call('HGET', w.root .. id, 'attemptsMade') or 0)
    note_failure(w, id, { error = why, failures = made or 0 })
    redis.call('SADD', w.keys.failed, id)
  else
    redis.call('HSET', w.prefix .. 'aside', id, why)
  end
  redis.call('LREM', w.keys.wait, 0, id)
  redis.call('LREM', w.keys.paused, 0, id)
  redis.call('ZREM', w.keys.delayed, id)
  redis.call('LREM', w.keys.active, 0, id)
end

-- If the counter was lost, its next value may be the id of an existing job, which would be overwritten.
local function wire_new_id(w, given)
  while given == '' do
    local id = string.format('%.0f', redis.call('INCR', w.keys.id))
    if redis.call('EXISTS', w.root .. id) == 0 then given = id end
  end
  return given
end

-- None while the queue is paused, not even jobs that the original has put into `wait` meanwhile.
local function wire_candidates(w, from, count)
  if redis.call('EXISTS', w.keys.meta) == 1 then return {}, 0 end
  local ids, found = redis.call('LRANGE', w.keys.wait, -from - count, -from - 1), {}
  for at = #ids, 1, -1 do found[#found + 1] = { id = ids[at], place = 'wait' } end
  return found, #ids == count and from + count or 0
end

-- What the functions of Bull know in one call. Its format (1.0): lists `wait`, `active` and `paused`, sorted
-- set `delayed`, sets `completed` and `failed`, a hash for each job, `<id>:lock`, the counter `id`,
-- `meta-paused`. Jobs wait in `wait`, or in `paused` while the queue is paused, and are taken from the right.
local function wire(root, prefix, queue, layout, settings, now_ms)
  local keys = { meta = root .. 'meta-paused', jobs = root .. 'jobs' }
  for _, name in ipairs({ 'wait', 'active', 'paused', 'delayed', 'completed', 'failed', 'id' }) do
    keys[name] = root .. name
  end
  return { root = root, prefix = prefix, now_ms = now_ms, keys = keys }
end
