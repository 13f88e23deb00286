-- Schedules on the wire: the state that schedulers of the live programs keep and read, and the lock that keeps them apart.
local function wire_cron(w, shared)
  local keys = shared.keys

  -- Who else has run this tick, or is about to: the live programs fire up to a second early.
  function w.may_tick(name, at_ms)
    local holder = redis.pcall('GET', keys.cron_lock(name))
    if type(holder) == 'string' and not string.find(holder, '^ironclaim:') then return false end
    local last = redis.pcall('HGET', keys.cron_state(name), 'last_run')
    local last_ms = type(last) == 'string' and shared.ms_of(last)
    -- Of ours, which may tick more often than once a second, our own state tells more.
    local own_ms = tonumber(redis.call('HGET', shared.prefix .. 'cron:' .. name, 'last_ms') or 0)
    return not last_ms or last_ms < at_ms - 1000 or last_ms == math.floor(own_ms / 1000) * 1000
  end

  function w.scheduled(name, next_ms)
    if next_ms and tonumber(next_ms) and tonumber(next_ms) > 0 then
      redis.call('HSET', keys.cron_state(name), 'next_run', shared.time(tonumber(next_ms), true))
    else
      redis.call('HDEL', keys.cron_state(name), 'next_run')
    end
  end

  -- The lock stays for two seconds, so that a scheduler which found the tick due before it was run here comes too late; no longer, or a
  -- scheduler of the live programs could not take over when this one stops.
  function w.ticked(name, at_ms, next_ms, id)
    local state = keys.cron_state(name)
    redis.call('SET', keys.cron_lock(name), 'ironclaim:' .. id, 'EX', 2)
    redis.call('HSET', state, 'last_run', shared.time(at_ms, true), 'last_success', shared.time(shared.now_ms, true))
    redis.call('HDEL', state, 'last_error')
    redis.call('HINCRBY', state, 'run_count', 1)
    w.scheduled(name, next_ms)
  end
end
