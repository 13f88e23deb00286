-- The keyspace looked at, jobs removed by hand, and pauses. The format has no list of finished jobs: ours has the last 1,000 of our side.
local function bridge_looks(w)
  local lists, zsets = { waiting = w.at_waiting, dead = w.at_dead }, { delayed = w.at_delayed, done = w.at_done }

  function w.count(state)
    if lists[state] then return redis.call('LLEN', lists[state]) end
    if zsets[state] then return redis.call('ZCARD', zsets[state]) end
    return state == 'active' and redis.call('SCARD', w.at_active) or 0
  end

  function w.list(state, offset, limit, newest_first)
    local found = {}
    if zsets[state] then
      local words = { 'ZRANGE', zsets[state], offset, offset + limit - 1 }
      if newest_first then words[5] = 'REV' end
      words[#words + 1] = 'WITHSCORES'
      return redis.call(unpack(words))
    end
    local ids = {}
    if state == 'active' then
      ids = redis.call('SMEMBERS', w.at_active)
      table.sort(ids)
      ids = { unpack(ids, offset + 1, math.min(offset + limit, #ids)) }
    elseif lists[state] then
      -- The dead are pushed to the head, the waiting ones to the end.
      local backwards = (state == 'dead') ~= (newest_first or false)
      local first, last = offset, offset + limit - 1
      if backwards then first, last = -offset - limit, -offset - 1 end
      if not (backwards and offset >= redis.call('LLEN', lists[state])) then ids = redis.call('LRANGE', lists[state], first, last) end
      if backwards then
        local turned = {}
        for at = #ids, 1, -1 do turned[#turned + 1] = ids[at] end
        ids = turned
      end
    end
    for _, id in ipairs(ids) do
      -- When it died is in its result, for as long as there is one.
      local ended_ms = state == 'dead' and string.match(w.text(w.at_result(id)) or '', '"completedAt":(%d+),"processingTime":%d+}$')
      found[#found + 1], found[#found + 2] = id, ended_ms or '0'
    end
    return found
  end

  function w.ended(id)
    local status = w.text(w.at_status(id))
    if status ~= 'completed' and status ~= 'dead' and status ~= 'failed' then return nil end
    local raw = w.text(w.at_result(id)) or ''
    local members = w.members(raw)
    local function part(name) return members and members.raw(name) end
    local function whole(name) return tonumber(part(name)) and w.ms(tonumber(part(name))) or '0' end
    local record = '"ended_ms":' .. whole('completedAt') .. ',"fence":0'
    if status == 'completed' then
      local value = part('data') and ',"value":' .. part('data') or ''
      record = raw ~= '' and '{"ok":true,' .. record .. ',"took_ms":' .. whole('processingTime') .. value .. '}' or ''
      return { state = 'finished', ended_ms = tonumber(whole('completedAt')), record = record }
    end
    local read, told = pcall(cjson.decode, part('error') or '{}')
    told = read and type(told) == 'table' and told or {}
    local name, message = told.name, type(told.message) == 'string' and told.message or ''
    local error = (type(name) == 'string' and name ~= 'Error' and name .. ': ' or '') .. message
    record = raw ~= '' and '{"ok":false,' .. record .. ',"error":' .. cjson.encode(error) .. '}' or ''
    return { state = 'dead', ended_ms = tonumber(whole('completedAt')), record = record, error = error }
  end

  -- Writes.
  function w.remove(id, state)
    if state == 'delayed' then w.undelay(id) end
    redis.call('ZREM', w.at_done, id)
    if lists[state] then redis.call('LREM', lists[state], 0, id) end
    if state == 'active' then w.leave(id, w.read(id)) end
    redis.call('DEL', w.at_result(id), w.at_lock(id), w.at_progress(id))
    -- The entry of a schedule has its JSON there as well.
    if redis.call('ZSCORE', w.at_cron, id) then return end
    -- Jobs that need this one would wait for its status for ever.
    redis.call('SET', w.prefix .. 'gone:' .. id, state == 'done' and 'completed' or 'failed', 'EX', 604800)
    redis.call('DEL', w.at_data(id), w.at_status(id))
  end

  -- Writes. Finished jobs are in no index, so the keys themselves are looked through; where the last call stopped is kept.
  function w.purge(most)
    redis.call('DEL', w.at_waiting, w.at_active, w.at_delayed, w.at_cron, w.at_dead, w.at_paused)
    local cursor = w.prefix .. 'purge'
    local literal = string.gsub(w.root, '[%*%?%[%]%^\\-]', '\\%0')
    local more = false
    for _, kind in ipairs({ 'jobs', 'ratelimit' }) do
      local from = redis.call('HGET', cursor, kind) or '0'
      if from ~= 'end' then
        local next, keys = unpack(redis.call('SCAN', from, 'MATCH', literal .. kind .. ':*', 'COUNT', most))
        for _, key in ipairs(keys) do redis.call('UNLINK', key) end
        redis.call('HSET', cursor, kind, next == '0' and 'end' or next)
        more = more or next ~= '0'
      end
    end
    if not more then redis.call('DEL', cursor) end
    return more
  end

  -- Writes. The format pauses types of jobs; of all of them at once it knows nothing.
  function w.pause(name)
    if name ~= '*' then redis.call('SADD', w.at_paused, name) end
  end
  function w.resume(name) redis.call('SREM', w.at_paused, name) end
  function w.paused(name) return redis.call('SISMEMBER', w.at_paused, name) == 1 end
end
