-- Reads of Bull's wire: a job's hash, whatever has written it, and where its id is. Adds to `bull`, the methods of the wire:
-- check, read, place, stuck, locked, mine; `keys`: the names of the queue's structures.
local function bull_read(bull, keys, root, tools)
  -- As the original reads numbers: the whole number at the start of a text, or `otherwise`.
  local function whole(text, otherwise, least, most)
    local number = tonumber(string.match(text or '', '^%s*([+-]?%d+)'))
    return number and math.max(least, math.min(number, most)) or otherwise
  end

  -- Rule 1. Sets have no check of their own in check_types.
  function bull.check()
    tools.check_types({ keys.delayed }, {}, { keys.wait, keys.paused, keys.active }, { keys.id, keys.meta })
    for _, key in ipairs({ keys.completed, keys.failed }) do
      local found = redis.pcall('SCARD', key)
      if type(found) == 'table' then
        if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then error(found) end
        error({ err = 'WRONGTYPE the key ' .. key .. ' is a ' .. redis.call('TYPE', key).ok .. ', it must be a set' })
      end
    end
  end

  -- An id whose hash would be one of the queue's own keys or of ours: such a key is never read or written as a job.
  function bull.reserved(id)
    local key = root .. id
    for _, own in pairs(keys) do
      if key == own then return true end
    end
    return id == '' or string.sub(id, -5) == ':lock' or string.sub(id, 1, 9) == 'ironclaim'
  end

  function bull.is_hash(id)
    return not bull.reserved(id) and redis.call('TYPE', root .. id).ok == 'hash'
  end

  function bull.read(id)
    if bull.reserved(id) then return { kind = 'corrupt', why = 'the id is that of a key of the queue', body = '' } end
    local found = redis.pcall('HMGET', root .. id, 'data', 'opts', 'attempts', 'timestamp', 'attemptsMade')
    if found.err then return { kind = 'corrupt', why = 'its key is a ' .. redis.call('TYPE', root .. id).ok .. ', not a hash', body = '' } end
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
    return { kind = 'J', name = name, body = body, failures = whole(found[5], 0, 0, 2147483647), attempts = whole(found[3], 1, 1, 2147483647),
      priority = 5, enqueued_ms = whole(found[4], 0, 0, 140737488355328), due_ms = 0,
      lifo = lifo and lifo ~= cjson.null and lifo ~= 0 and lifo ~= '' }
  end

  function bull.waits(id)
    return redis.call('LPOS', keys.wait, id) or redis.call('LPOS', keys.paused, id)
  end

  -- In the order in which the original's getState asks.
  function bull.place(id)
    if redis.call('SISMEMBER', keys.completed, id) == 1 then return 'done' end
    if redis.call('SISMEMBER', keys.failed, id) == 1 then return 'dead' end
    if redis.call('ZSCORE', keys.delayed, id) then return 'delayed' end
    if redis.call('LPOS', keys.active, id) then return 'active' end
    return bull.waits(id) and 'waiting' or nil
  end

  -- A job that is in no structure, as the original calls it too: its resume and its pause lose some.
  function bull.stuck(id)
    return bull.is_hash(id) and not bull.place(id)
  end

  -- Whether a lock is one of ours: fence, incarnation and counter, which no queue of the original would write.
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
