-- The original's rate limiter: `rate_limit:<key>` holds the begin of a window (s) and how much ran in it. The limit itself is no part of the
-- wire: it is one that the queue was given, for the job's key or for its name. Only claims ask, so the look and the count are one step.
local function wire_rates(keys, prefix, now_ms)
  local rates, limits, reserved = {}, nil, {}
  local function limit_of(job)
    if not limits then
      limits = {}
      local flat = redis.call('HGETALL', prefix .. 'limits')
      for at = 1, #flat, 2 do limits[flat[at]] = flat[at + 1] end
    end
    local definition = job.key and (limits['k:' .. job.key] or limits['k:*']) or limits['n:' .. job.name]
    local rate, per_ms = string.match(definition or '', '^%d+ (%d+) (%d+) %a+$')
    if not rate or rate == '0' then return nil end
    return keys.rate(job.key or job.name), tonumber(rate), tonumber(per_ms)
  end
  -- The window that is open: its key, its begin, what ran in it (nil: a new one begins), the limit and its length.
  local function window_of(job)
    local key, rate, per_ms = limit_of(job)
    if not key then return nil end
    local was = redis.pcall('HMGET', key, 'window_start', 'run_count')
    local start_s, ran = not was.err and tonumber(was[1]), not was.err and tonumber(was[2]) or 0
    -- One that a clock which stepped back has left ahead counts as over (rule 10).
    if not start_s or start_s * 1000 + per_ms < now_ms or start_s * 1000 > now_ms + 1000 then return key, nil, 0, rate, per_ms end
    return key, start_s, ran, rate, per_ms
  end
  -- Until when a job is kept back by its rate; nil: it may run, and the other candidates of this claim find its place taken.
  function rates.kept_until_ms(job)
    local key, start_s, ran, rate, per_ms = window_of(job)
    if not key then return nil end
    local cost, before = math.min(job.cost or 1, rate), reserved[key] or 0
    if ran + before + cost <= rate then
      reserved[key] = before + cost
      return nil
    end
    return (start_s or math.floor(now_ms / 1000)) * 1000 + per_ms + 1
  end
  function rates.count(job)
    local key, start_s, _, rate = window_of(job)
    if not key then return end
    if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
    if not start_s then redis.call('HSET', key, 'window_start', math.floor(now_ms / 1000), 'run_count', 0) end
    redis.call('HINCRBY', key, 'run_count', math.min(job.cost or 1, rate))
  end
  return rates
end
