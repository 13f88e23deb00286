-- The registry of workers, the scheduler's lock, and what foreign clients that are gone have left behind.
local function bridge_workers(w)
  local lock = w.root .. 'scheduler:lock'
  local function about_key(server) return w.root .. 'workers:' .. server end
  local function heart_key(server) return w.root .. 'workers:heartbeat:' .. server end

  -- Writes. A name that would be another key of the registry is not entered there (the model refuses it before it comes here).
  function w.beat(incarnation, about, ttl_ms, gone)
    local read, told = pcall(cjson.decode, about)
    local name = read and type(told) == 'table' and told.name
    if gone then
      -- The last beat tells nothing of the worker.
      name = redis.call('HGET', w.prefix .. 'servers', incarnation)
      redis.call('HDEL', w.prefix .. 'servers', incarnation)
      if w.text(lock) == incarnation then redis.call('DEL', lock) end
      if name then
        redis.call('SREM', w.at_workers, name)
        redis.call('DEL', about_key(name), heart_key(name))
      end
      return
    end
    if type(name) ~= 'string' or name == 'active' or string.find(name, '^heartbeat:') then return end
    local is = type(told.routing) == 'table' and told.routing or {}
    local has = type(is.capabilities) == 'table' and #is.capabilities > 0 and cjson.encode(is.capabilities) or '[]'
    local function text(value) return w.quoted(type(value) == 'string' and value or '') end
    redis.call('HSET', w.prefix .. 'servers', incarnation, name)
    redis.call('SADD', w.at_workers, name)
    redis.call('SET', about_key(name), '{"serverId":' .. text(name) .. ',"stack":' .. text(is.stack) .. ',"region":' .. text(is.region)
      .. ',"capabilities":' .. has .. ',"lastSeen":' .. w.ms(w.now_ms) .. ',"pid":' .. w.ms(tonumber(told.pid) or 0)
      .. ',"hostname":' .. text(told.host) .. '}')
    redis.call('SET', heart_key(name), w.ms(w.now_ms), 'PX', w.ms(ttl_ms))
  end

  -- Writes. Held by whoever took it, and renewed by that one alone: the original has neither a renewal nor a release.
  function w.lead(incarnation, ttl_ms)
    if redis.call('SET', lock, incarnation, 'NX', 'PX', w.ms(ttl_ms)) then return true end
    return w.text(lock) == incarnation and redis.call('PEXPIRE', lock, w.ms(ttl_ms)) == 1
  end

  -- A worker that had a heartbeat and has none any more. Its first one comes late: until then the time of its entry counts.
  local function dead(server)
    if redis.call('SISMEMBER', w.at_workers, server) == 0 or redis.call('EXISTS', heart_key(server)) == 1 then return false end
    local members = w.members(w.text(about_key(server)) or '')
    local seen_ms = members and tonumber(members.value('lastSeen')) or 0
    return seen_ms < w.now_ms - 30000
  end

  -- Writes. A counter that says another number than there are active jobs of its type has leaked, or was lost: it is set right.
  -- Only those that have kept a job waiting are looked at, and only while so few are active that they can be counted here.
  local function mend_counters()
    local kinds = redis.call('SMEMBERS', w.at_limited)
    if #kinds == 0 or redis.call('SCARD', w.at_active) > 2000 then return end
    local running = {}
    for _, id in ipairs(redis.call('SMEMBERS', w.at_active)) do
      local kind = (w.read(id) or {}).name
      if kind then running[kind] = (running[kind] or 0) + 1 end
    end
    for _, kind in ipairs(kinds) do
      local counted = w.text(w.at_running(kind))
      if counted and tonumber(counted) ~= (running[kind] or 0) then redis.call('SET', w.at_running(kind), running[kind] or 0, 'KEEPTTL') end
      if not running[kind] then redis.call('SREM', w.at_limited, kind) end
    end
  end

  -- Writes only where it stopped to look, and counters. Active jobs of which nobody keeps a lock, or a worker that is dead does: not
  -- those that are `ours`. Those that were found before come first: they must be seen twice, and the look goes round in pieces.
  function w.strays(most, ours)
    mend_counters()
    local key, found, known = w.prefix .. 'looked', {}, {}
    local function look(id)
      if known[id] or #found >= most then return end
      known[id] = true
      if redis.call('SISMEMBER', w.at_active, id) == 0 or ours(id) then return end
      local holder = w.text(w.at_lock(id))
      if not holder or dead(holder) then found[#found + 1] = id end
    end
    for _, id in ipairs(redis.call('ZRANGE', w.prefix .. 'strays', 0, most - 1)) do look(id) end
    local next, ids = unpack(redis.call('SSCAN', w.at_active, w.text(key) or '0', 'COUNT', math.max(most, 100)))
    if next == '0' then redis.call('DEL', key) else redis.call('SET', key, next) end
    for _, id in ipairs(ids) do look(id) end
    return found
  end
end
