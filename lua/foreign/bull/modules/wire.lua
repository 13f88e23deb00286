-- The wire format of Bull 1.0.
-- USES bull/looks: bull_looks
--      core/call: check_types

-- Reads of Bull's wire: a job's hash, whichever client has written it, and its place. Adds to `bull`, the
-- methods of the wire: check, read, place, stuck, locked, mine; `keys`: the names of the queue's structures.
local function bull_read(bull, keys, root)
  -- As the original reads numbers: the whole number at the start of a text, or `otherwise`.
  local function whole(text, otherwise, least, most)
    local number = tonumber(string.match(text or '', '^%s*([+-]?%d+)'))
    return number and math.max(least, math.min(number, most)) or otherwise
  end

  -- Rule 1. check_types does not check sets.
  function bull.check()
    check_types({ keys.delayed }, {}, { keys.wait, keys.paused, keys.active }, { keys.id, keys.meta })
    for _, key in ipairs({ keys.completed, keys.failed }) do
      local found = redis.pcall('SCARD', key)
      if type(found) == 'table' then
        if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then error(found) end
        error({ err = 'WRONGTYPE the key ' .. key .. ' is a ' .. redis.call('TYPE', key).ok
          .. ', it must be a set' })
      end
    end
  end

  -- An id whose hash would be a key of the queue or of the engine: such a key is never read or written as a
  -- job.
  function bull.reserved(id)
    local key = root .. id
    for _, own in pairs(keys) do
      if key == own then return true end
    end
    return id == '' or id == 'lock' or string.sub(id, -5) == ':lock' or string.sub(id, 1, 9) == 'ironclaim'
  end

  function bull.is_hash(id)
    return not bull.reserved(id) and redis.call('TYPE', root .. id).ok == 'hash'
  end

  function bull.read(id)
    if bull.reserved(id) then
      return { kind = 'corrupt', why = 'the id is that of a key of the queue', body = '' }
    end
    local found = redis.pcall('HMGET', root .. id, 'data', 'opts', 'attempts', 'timestamp', 'attemptsMade')
    if found.err then
      return { kind = 'corrupt', why = 'its key is a ' .. redis.call('TYPE', root .. id).ok .. ', not a hash',
        body = '' }
    end
    local data, text = found[1], found[2] or '{}'
    if not data then
      if redis.call('EXISTS', root .. id) == 0 then return nil end
      return { kind = 'corrupt', why = 'the hash has no data', body = '' }
    end
    local body = { data, text, found[3] or '', found[4] or '' }
    local fine, opts = pcall(cjson.decode, text)
    if not fine then return { kind = 'corrupt', why = 'opts are no JSON', body = body } end
    if type(opts) ~= 'table' then opts = {} end
    local name = type(opts.name) == 'string' and opts.name ~= '' and opts.name or '__default__'
    local lifo = opts.lifo
    return { kind = 'J', name = name, body = body, failures = whole(found[5], 0, 0, 2147483647),
      attempts = whole(found[3], 1, 1, 2147483647),
      priority = 5, enqueued_ms = whole(found[4], 0, 0, 140737488355328), due_ms = 0,
      lifo = lifo and lifo ~= cjson.null and lifo ~= 0 and lifo ~= '' }
  end

  function bull.waits(id)
    return redis.call('LPOS', keys.wait, id) or redis.call('LPOS', keys.paused, id)
  end

  -- In the order of the original's getState.
  function bull.place(id)
    if redis.call('SISMEMBER', keys.completed, id) == 1 then return 'done' end
    if redis.call('SISMEMBER', keys.failed, id) == 1 then return 'dead' end
    if redis.call('ZSCORE', keys.delayed, id) then return 'delayed' end
    if redis.call('LPOS', keys.active, id) then return 'active' end
    return bull.waits(id) and 'waiting' or nil
  end

  -- A job that is in no structure; the original also calls it stuck. Its resume and its pause lose some.
  function bull.stuck(id)
    return bull.is_hash(id) and not bull.place(id)
  end

  -- Whether a lock is this engine's: fence, incarnation and counter. The original writes no such value.
  function bull.ours(lock)
    return type(lock) == 'string' and string.find(lock, '^%d+:%w+:%d+$') ~= nil
  end

  function bull.locked(id)
    local lock = redis.pcall('GET', root .. id .. ':lock')
    return lock and not bull.ours(lock)
  end

  function bull.mine(id, token)
    local lock = redis.pcall('GET', root .. id .. ':lock')
    return (not lock or lock == token) and redis.call('LPOS', keys.active, id) and true or false
  end
end

-- Delayed jobs on Bull's wire: a score is the time in ms times 4096, plus the low 12 bits of the id. Adds to
-- `bull`, the methods of the wire: due, next_due_ms, due_at, promote.
local function bull_due(bull, keys, root, now_ms)
  local function time_of(score)
    return math.floor(tonumber(score) / 4096)
  end

  -- The time (ms) of a score, limited to valid times.
  local function bounded(score)
    return math.max(0, math.min(time_of(score), 140737488355328))
  end

  -- Members from the least score to `most`, as { id, time }.
  local function members(from, to, limit)
    local flat = redis.call('ZRANGEBYSCORE', keys.delayed, from, to, 'WITHSCORES', 'LIMIT', 0, limit)
    local found = {}
    for at = 1, #flat, 2 do
      found[#found + 1] = { id = flat[at], time = time_of(flat[at + 1]),
        number = tonumber(string.match(flat[at], '^%d+$')) }
    end
    return found
  end

  -- Due jobs, first in, first out among equal times: sorted by the whole id, because by its low 12 bits 4096
  -- would come before 4095. Ids that are no numbers keep the order of the set. If more than 4096 jobs have
  -- the same time, they are sorted 4096 at a time.
  function bull.due(most)
    local found = members('-inf', string.format('(%.0f', (now_ms + 1) * 4096), most)
    if #found == most then
      local time, whole = found[most].time, {}
      for _, member in ipairs(found) do
        if member.time < time then whole[#whole + 1] = member end
      end
      local first, last = string.format('%.0f', time * 4096), string.format('(%.0f', (time + 1) * 4096)
      if time < 0 then first, last = '-inf', '(0' end
      for _, member in ipairs(members(first, last, 4096)) do whole[#whole + 1] = member end
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

  function bull.next_due_ms()
    local score = redis.call('ZRANGE', keys.delayed, 0, 0, 'WITHSCORES')[2]
    return score and bounded(score) or nil
  end

  function bull.due_at(id)
    local score = redis.call('ZSCORE', keys.delayed, id)
    return score and bounded(score) or nil
  end

  -- `redo`: a copy that was cut off may have put it into its list already.
  function bull.promote(id, redo)
    if not bull.is_hash(id) then
      redis.call('ZREM', keys.delayed, id)
      return false
    end
    if not (redo and bull.waits(id)) then bull.push(id, 'LPUSH') end
    redis.call('HSET', root .. id, 'delay', '0')
    redis.call('ZREM', keys.delayed, id)
    redis.call('LREM', keys.active, 0, id)
    -- Timers of the original sleep until the last published time.
    local score = redis.call('ZRANGE', keys.delayed, 0, 0, 'WITHSCORES')[2]
    if score and tonumber(score) / 4096 > now_ms then
      redis.call('PUBLISH', keys.delayed, string.format('%.17g', tonumber(score) / 4096))
    end
    return true
  end
end

-- Writes of Bull's wire for jobs that are added, run and end. Adds to `bull`, the methods of the wire: add,
-- take, extend, back, done, again, bury, drop, noted, set_aside; and the helpers `push` and `leave`.
local function bull_ends(bull, keys, root, prefix, now_ms)
  -- While the queue is paused no job may be put into `wait`. The original's promotion and retry do so
  -- nevertheless; those jobs run despite the pause, or are lost with the next resume.
  local function waiting_list()
    return redis.call('EXISTS', keys.meta) == 1 and keys.paused or keys.wait
  end

  -- Jobs are taken from the right.
  function bull.push(id, command)
    redis.call(command, waiting_list(), id)
    redis.call('PUBLISH', keys.jobs, id)
  end

  function bull.leave(id)
    redis.call('LREM', keys.active, 0, id)
    if not bull.locked(id) then redis.call('DEL', root .. id .. ':lock') end
  end

  -- The low bits of an id that is no number are 0, as in the original.
  function bull.delay(id, due_ms)
    local low = string.find(id, '^%d+$') and tonumber(id) % 4096 or 0
    -- From 2039 on a double has no room for all of those bits. A score that would be rounded up to the next
    -- millisecond is rounded down.
    local step = 1
    while due_ms * 4096 >= 9007199254740992 * step do step = step * 2 end
    local score = due_ms * 4096 + (low - low % step)
    redis.call('ZADD', keys.delayed, string.format('%.0f', score), id)
    redis.call('PUBLISH', keys.delayed, string.format('%.17g', score / 4096))
  end

  -- The hash before the index: no client can handle an id without a hash. If the call is cut off in between,
  -- its repeat puts the id into its place.
  function bull.add(item, due_ms)
    local data, opts, rest, attempts, timestamp, lifo = unpack(item.fields)
    local delay = item.wait_ms > 0 and item.wait_ms or math.max(0, due_ms - now_ms)
    -- The format stores a delay, so a due time is written as the delay until then.
    if rest ~= '' then opts = opts .. string.format('%.0f', delay) .. rest end
    redis.call('HSET', root .. item.id, 'data', data, 'opts', opts, 'progress', '0', 'delay',
      string.format('%.0f', delay), 'timestamp',
      timestamp ~= '' and timestamp or string.format('%.0f', now_ms), 'attempts', attempts, 'attemptsMade',
      '0', 'stacktrace', '[]',
      'returnvalue', 'null')
    if due_ms > now_ms then
      bull.delay(item.id, due_ms)
    else
      bull.push(item.id, lifo == '1' and 'RPUSH' or 'LPUSH')
    end
  end

  function bull.take(id, job, place, lease)
    -- A second entry of a job that has ended, as a check for stalled jobs makes them.
    if redis.call('SISMEMBER', keys.completed, id) == 1 or redis.call('SISMEMBER', keys.failed, id) == 1 then
      redis.call('LREM', keys.wait, -1, id)
      return false
    end
    if redis.call('LINDEX', keys.wait, -1) == id then
      redis.call('RPOPLPUSH', keys.wait, keys.active)
    else
      if not redis.call('LPOS', keys.wait, id, 'RANK', -1) then return false end
      redis.call('LPUSH', keys.active, id)
      redis.call('LREM', keys.wait, -1, id)
    end
    bull.extend(id, lease)
    return true
  end

  function bull.extend(id, lease)
    -- Half a lease longer than the lease: the engine's sweeps wait as long after a stall (rule 11), and so
    -- must the original's check for stalled jobs.
    redis.call('SET', root .. id .. ':lock', lease.token, 'PX', string.format('%.0f', lease.lease_ms * 1.5))
  end

  -- A job that the engine leases is in the engine's `active` until all is done, so its id leaves the wire's
  -- `active` first. If the call is cut off in between, the job is in no list, and a sweep brings it back. The
  -- job of a foreign client has no such entry: its id leaves last, and must not be added twice.
  function bull.back(id, job, front)
    local place, leased = bull.place(id), redis.call('ZSCORE', prefix .. 'active', id)
    if leased then bull.leave(id) end
    if (place == nil or place == 'active') and (leased or not bull.waits(id)) then
      bull.push(id, front and 'RPUSH' or 'LPUSH')
    end
    if not leased then bull.leave(id) end
  end

  function bull.done(id, job, value, took_ms)
    if bull.is_hash(id) then
      -- The original writes an empty text where there is no value. A repeat without a value keeps the one
      -- that is there.
      local known = redis.call('HGET', root .. id, 'returnvalue') or 'null'
      if value or known == 'null' then redis.call('HSET', root .. id, 'returnvalue', value or '') end
      redis.call('SADD', keys.completed, id)
    end
    bull.leave(id)
  end

  -- A text as a JSON string, escaped as in the original.
  local function json_text(text)
    local short = { ['"'] = '\\"', ['\\'] = '\\\\', ['\b'] = '\\b', ['\f'] = '\\f', ['\n'] = '\\n',
      ['\r'] = '\\r', ['\t'] = '\\t' }
    return '"' .. string.gsub(text, '[%z\1-\31"\\]',
      function(one) return short[one] or string.format('\\u%04x', string.byte(one)) end) .. '"'
  end

  -- Append one stack trace; the earlier ones keep their bytes, unless the value is no array.
  local function note_failure(id, failure)
    local failures = string.format('%.0f', failure.failures)
    if failure.redo and redis.call('HGET', root .. id, 'attemptsMade') == failures then return end
    local text = failure.error or ''
    if failure.trace and failure.trace ~= '' then text = text .. '\n' .. failure.trace end
    local traces = redis.call('HGET', root .. id, 'stacktrace') or ''
    local fine, list = pcall(cjson.decode, traces)
    local inside = fine and type(list) == 'table' and string.match(traces, '^%s*%[(.*)%]%s*$')
    if not inside or string.find(inside, '^%s*$') then inside = '' else inside = inside .. ',' end
    redis.call('HSET', root .. id, 'attemptsMade', failures, 'stacktrace',
      '[' .. inside .. json_text(text) .. ']')
  end

  function bull.again(id, job, failure)
    local place = failure.redo and bull.place(id)
    if bull.is_hash(id) and (not place or place == 'active') then
      note_failure(id, failure)
      bull.leave(id)
      if failure.due_ms > now_ms then
        bull.delay(id, failure.due_ms)
      else
        bull.push(id, job.lifo and 'RPUSH' or 'LPUSH')
      end
    else
      bull.leave(id)
    end
  end

  function bull.bury(id, job, failure)
    if bull.is_hash(id) then
      note_failure(id, failure)
      redis.call('SADD', keys.failed, id)
    end
    bull.leave(id)
  end

  -- The format has no ends of a job but completed and failed, so the job is deleted.
  function bull.drop(id, job, outcome)
    redis.call('DEL', root .. id)
    bull.leave(id)
  end

  -- The wire holds progress as one number, without a time; that of a new job is 0.
  function bull.progress(id, percent)
    local text = bull.is_hash(id) and redis.call('HGET', root .. id, 'progress') or '0'
    local number = string.match(text, '^-?[%d.eE+-]+$') and tonumber(text)
    return number ~= tonumber(percent or 0) and number or nil
  end

  function bull.noted(id, job, body)
    local percent = string.match(body, '"percent":([%d.eE+-]+)')
    if percent and bull.is_hash(id) then redis.call('HSET', root .. id, 'progress', percent) end
  end

  -- Clients that list `failed` cannot read an id without a hash: such an id goes to a hash of the engine.
  function bull.set_aside(id, place, why)
    if bull.is_hash(id) then
      note_failure(id, { error = why, failures = tonumber(redis.call('HGET', root .. id, 'attemptsMade') or 0)
        or 0 })
      redis.call('SADD', keys.failed, id)
    else
      redis.call('HSET', prefix .. 'aside', id, why)
    end
    redis.call('LREM', keys.wait, 0, id)
    redis.call('LREM', keys.paused, 0, id)
    redis.call('ZREM', keys.delayed, id)
    redis.call('LREM', keys.active, 0, id)
  end
end

-- Bull's wire format (1.0): lists `wait`, `active` and `paused`, sorted set `delayed`, sets `completed` and
-- `failed`, a hash for each job, `<id>:lock`, the counter `id`, `meta-paused`. Jobs wait in `wait`, or in
-- `paused` while the queue is paused, and are taken from the right.
local function wire(root, prefix, queue, layout, settings, now_ms)
  local bull, keys = {}, { meta = root .. 'meta-paused', jobs = root .. 'jobs' }
  for _, name in ipairs({ 'wait', 'active', 'paused', 'delayed', 'completed', 'failed', 'id' }) do
    keys[name] = root .. name
  end
  bull_read(bull, keys, root)
  bull_ends(bull, keys, root, prefix, now_ms)
  bull_due(bull, keys, root, now_ms)
  bull_looks(bull, keys, root, prefix, now_ms)

  -- If the counter was lost, its next value may be the id of an existing job, which would be overwritten.
  function bull.new_id(given)
    while given == '' do
      local id = string.format('%.0f', redis.call('INCR', keys.id))
      if redis.call('EXISTS', root .. id) == 0 then given = id end
    end
    return given
  end

  function bull.admit()
    return nil
  end

  -- None while the queue is paused, not even jobs that the original has put into `wait` meanwhile.
  function bull.candidates(from, count)
    if redis.call('EXISTS', keys.meta) == 1 then return {}, 0 end
    local ids, found = redis.call('LRANGE', keys.wait, -from - count, -from - 1), {}
    for at = #ids, 1, -1 do found[#found + 1] = { id = ids[at], place = 'wait' } end
    return found, #ids == count and from + count or 0
  end

  function bull.elsewhere() return false end
  function bull.refuses() return false end

  return bull
end
