-- Writes of Bull's wire for jobs that come, run and end. Adds to `bull`, the methods of the wire: add, take, extend, back, done,
-- again, bury, drop, noted, set_aside; and `push` and `leave` for the others.
local function bull_ends(bull, keys, root, prefix, now_ms)
  -- While the queue is paused nothing must come into `wait`: the original's promotion and retry put jobs there all the same, which
  -- run then, or are lost with the next resume.
  local function line()
    return redis.call('EXISTS', keys.meta) == 1 and keys.paused or keys.wait
  end

  -- Jobs are taken from the right.
  function bull.push(id, command)
    redis.call(command, line(), id)
    redis.call('PUBLISH', keys.jobs, id)
  end

  function bull.leave(id)
    redis.call('LREM', keys.active, 0, id)
    if not bull.locked(id) then redis.call('DEL', root .. id .. ':lock') end
  end

  -- Of an id that is no number the low bits are 0, as the original's arithmetic has it.
  function bull.delay(id, due_ms)
    local low = string.find(id, '^%d+$') and tonumber(id) % 4096 or 0
    -- From 2039 on a score has no room for all of those bits: what would be rounded up to the next millisecond is rounded down.
    local step = 1
    while due_ms * 4096 >= 9007199254740992 * step do step = step * 2 end
    local score = due_ms * 4096 + (low - low % step)
    redis.call('ZADD', keys.delayed, string.format('%.0f', score), id)
    redis.call('PUBLISH', keys.delayed, string.format('%.17g', score / 4096))
  end

  -- The hash before the index: an id without a hash is what no client can do anything with. The repeat of a call that was cut off
  -- in between puts the id into its place.
  function bull.add(item, due_ms)
    local data, opts, rest, attempts, timestamp, lifo = unpack(item.fields)
    local delay = item.wait_ms > 0 and item.wait_ms or math.max(0, due_ms - now_ms)
    -- A job that is due at a time is written as one with the delay until then.
    if rest ~= '' then opts = opts .. string.format('%.0f', delay) .. rest end
    redis.call('HSET', root .. item.id, 'data', data, 'opts', opts, 'progress', '0', 'delay', string.format('%.0f', delay), 'timestamp',
      timestamp ~= '' and timestamp or string.format('%.0f', now_ms), 'attempts', attempts, 'attemptsMade', '0', 'stacktrace', '[]',
      'returnvalue', 'null')
    if due_ms > now_ms then bull.delay(item.id, due_ms) else bull.push(item.id, lifo == '1' and 'RPUSH' or 'LPUSH') end
  end

  function bull.take(id, job, place, lease)
    -- One entry of several for one job, as a check for stalled jobs makes them: it has ended by another one.
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
    -- Half a lease longer: so long our own sweeps wait after a stall (rule 11), and the original's check for stalled jobs must as well.
    redis.call('SET', root .. id .. ':lock', lease.token, 'PX', string.format('%.0f', lease.lease_ms * 1.5))
  end

  -- One of our leases stands in our own `active` until all is done, so the id leaves first: cut off in between, it is nowhere, and
  -- comes back. What a foreign client has left behind must not be nowhere, so it leaves last, and may not be put in twice.
  function bull.back(id, job, front)
    local place, leased = bull.place(id), redis.call('ZSCORE', prefix .. 'active', id)
    if leased then bull.leave(id) end
    if (place == nil or place == 'active') and (leased or not bull.waits(id)) then bull.push(id, front and 'RPUSH' or 'LPUSH') end
    if not leased then bull.leave(id) end
  end

  function bull.done(id, job, value, took_ms)
    if bull.is_hash(id) then
      -- Node writes an empty text where there is nothing. A repeat that knows no value any more leaves the one that is there.
      local known = redis.call('HGET', root .. id, 'returnvalue') or 'null'
      if value or known == 'null' then redis.call('HSET', root .. id, 'returnvalue', value or '') end
      redis.call('SADD', keys.completed, id)
    end
    bull.leave(id)
  end

  -- As the original's serialiser writes texts.
  local function json_text(text)
    local short = { ['"'] = '\\"', ['\\'] = '\\\\', ['\b'] = '\\b', ['\f'] = '\\f', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t' }
    return '"' .. string.gsub(text, '[%z\1-\31"\\]', function(one) return short[one] or string.format('\\u%04x', string.byte(one)) end) .. '"'
  end

  -- One trace more; what was there stays byte for byte, unless it is no array.
  local function note_failure(id, failure)
    local failures = string.format('%.0f', failure.failures)
    if failure.redo and redis.call('HGET', root .. id, 'attemptsMade') == failures then return end
    local text = failure.error or ''
    if failure.trace and failure.trace ~= '' then text = text .. '\n' .. failure.trace end
    local traces = redis.call('HGET', root .. id, 'stacktrace') or ''
    local fine, list = pcall(cjson.decode, traces)
    local inside = fine and type(list) == 'table' and string.match(traces, '^%s*%[(.*)%]%s*$')
    if not inside or string.find(inside, '^%s*$') then inside = '' else inside = inside .. ',' end
    redis.call('HSET', root .. id, 'attemptsMade', failures, 'stacktrace', '[' .. inside .. json_text(text) .. ']')
  end

  function bull.again(id, job, failure)
    local place = failure.redo and bull.place(id)
    if bull.is_hash(id) and (not place or place == 'active') then
      note_failure(id, failure)
      bull.leave(id)
      if failure.due_ms > now_ms then bull.delay(id, failure.due_ms) else bull.push(id, job.lifo and 'RPUSH' or 'LPUSH') end
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

  -- The format knows no other end of a job than completed and failed.
  function bull.drop(id, job, outcome)
    redis.call('DEL', root .. id)
    bull.leave(id)
  end

  -- The wire holds one number.
  function bull.noted(id, job, body)
    local percent = string.match(body, '"percent":([%d.eE+-]+)')
    if percent and bull.is_hash(id) then redis.call('HSET', root .. id, 'progress', percent) end
  end

  -- An id without a hash would be read as nothing by those who list `failed`: it goes to a hash of ours.
  function bull.set_aside(id, place, why)
    if bull.is_hash(id) then
      note_failure(id, { error = why, failures = tonumber(redis.call('HGET', root .. id, 'attemptsMade') or 0) or 0 })
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
