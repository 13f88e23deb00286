-- What a claim asks of the wire, and the leases of our side on it. The lock's value is the name of the worker, as the format has it:
-- our token is not on the wire.
local function bridge_claims(w)
  function w.candidates(from, count)
    local found = {}
    for at, id in ipairs(redis.call('LRANGE', w.at_waiting, from, from + count - 1)) do found[at] = { id = id, place = from + at - 1 } end
    return found, #found == count and from + count or 0
  end

  function w.locked(id) return redis.call('EXISTS', w.at_lock(id)) == 1 end

  -- Writes only that a type has a limit, for the sweeps to look after its counter. The second value: it can never be claimed, and why.
  function w.refuses(job, worker)
    if redis.call('SISMEMBER', w.at_paused, job.name) == 1 or not w.matches(job.target, worker) then return true end
    for _, parent in ipairs(job.needs or {}) do
      local status = w.text(w.at_status(parent))
      if status == 'dead' or status == 'failed' then return true, 'it needs ' .. parent .. ', which is ' .. status end
      if status ~= 'completed' then return true end
    end
    if job.concurrent then
      -- As the original: without a counter there is room.
      local running = tonumber(w.text(w.at_running(job.name)))
      if running and running >= job.concurrent then
        redis.call('SADD', w.at_limited, job.name)
        return true
      end
    end
    local claimed = job.per_minute and tonumber(w.text(w.at_minute(job.name)))
    return claimed ~= nil and claimed >= job.per_minute
  end

  -- Writes. Active before it leaves the list: cut off in between it is in both, and a sweep finds it.
  function w.take(id, job, place, lease)
    local at = redis.call('LPOS', w.at_waiting, id, 'MAXLEN', place + 1)
    if not at or not redis.call('SET', w.at_lock(id), lease.owner, 'NX', 'PX', w.ms(lease.lease_ms)) then return false end
    local new = redis.call('SADD', w.at_active, id) == 1
    redis.call('LREM', w.at_waiting, 1, id)
    -- One that is active still from a lock that ran out has been counted then. A counter of another type counts nothing.
    if new then redis.pcall('INCR', w.at_running(job.name)) end
    if job.per_minute then
      local minute = w.at_minute(job.name)
      if not redis.call('SET', minute, 1, 'NX', 'EX', 60) then
        redis.pcall('INCR', minute)
        redis.call('EXPIRE', minute, 60, 'NX')
      end
    end
    redis.call('SET', w.at_status(id), 'active')
    return true
  end

  function w.owner(id) return redis.call('HGET', w.prefix .. 'run:' .. id, 'owner') end

  -- Writes.
  function w.extend(id, lease)
    redis.call('SET', w.at_lock(id), lease.owner or w.owner(id) or lease.token, 'PX', w.ms(lease.lease_ms))
  end

  function w.mine(id)
    local holder = w.text(w.at_lock(id))
    if holder then return holder == w.owner(id) end
    return redis.call('SISMEMBER', w.at_active, id) == 1
  end

  -- Jobs due at the same time come in the order of their enqueues; the index alone has them in that of their ids.
  function w.due(most)
    local found = redis.call('ZRANGE', w.at_delayed, '-inf', w.ms(w.now_ms), 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
    local entries, ids = {}, {}
    for at = 1, #found, 2 do
      local tied = found[at + 1] == found[at - 1] or found[at + 1] == found[at + 3]
      local made_ms = tied and (w.read(found[at]) or {}).enqueued_ms or 0
      entries[#entries + 1] = { id = found[at], due_ms = tonumber(found[at + 1]), made_ms = made_ms, at = at }
    end
    table.sort(entries, function(one, other)
      if one.due_ms ~= other.due_ms then return one.due_ms < other.due_ms end
      if one.made_ms ~= other.made_ms then return one.made_ms < other.made_ms end
      return one.at < other.at
    end)
    for at, entry in ipairs(entries) do ids[at] = entry.id end
    return ids
  end

  function w.next_due_ms() return tonumber(redis.call('ZRANGE', w.at_delayed, 0, 0, 'WITHSCORES')[2]) end

  -- Writes. To the end, as the original's promotion does it whatever the priority.
  function w.promote(id)
    local raw = w.text(w.at_data(id))
    if raw then
      redis.call('RPUSH', w.at_waiting, id)
      redis.call('SET', w.at_status(id), 'waiting')
    end
    redis.call('ZREM', w.at_delayed, id)
    return raw ~= nil
  end
end
