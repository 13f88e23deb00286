-- BridgeMQ's wire: all that is known of its keys and its JSON (seeds/bridge.md). `w` is what the shared scripts ask for; names that
-- begin with `at_` are keys. Methods that write say so.
-- @include bridge_job
-- @include bridge_matches
-- @include bridge_claims
-- @include bridge_ends
-- @include bridge_looks
-- @include bridge_workers
-- @include bridge_cron
local function wire(root, prefix, queue, layout, settings, now_ms, tools)
  local w = { root = root, prefix = prefix, now_ms = now_ms, fields = tools.fields, members = tools.json_members, matches = bridge_matches }
  w.at_waiting, w.at_active, w.at_delayed = root .. 'jobs:waiting', root .. 'jobs:active', root .. 'jobs:delayed'
  w.at_cron, w.at_dead, w.at_paused = root .. 'jobs:cron', root .. 'jobs:deadletter', root .. 'queues:paused'
  w.at_workers, w.at_limited, w.at_order, w.at_done = root .. 'workers:active', prefix .. 'limited', prefix .. 'order', prefix .. 'done'
  function w.at_data(id) return root .. 'jobs:data:' .. id end
  function w.at_status(id) return root .. 'jobs:status:' .. id end
  function w.at_lock(id) return root .. 'jobs:lock:' .. id end
  function w.at_result(id) return root .. 'jobs:result:' .. id end
  function w.at_progress(id) return root .. 'jobs:progress:' .. id end
  function w.at_running(kind) return root .. 'ratelimit:concurrent:' .. kind end
  function w.at_minute(kind) return root .. 'ratelimit:minute:' .. kind end
  -- A string whatever stands there; nil for none and for another type.
  function w.text(key)
    local found = redis.pcall('GET', key)
    return type(found) == 'string' and found or nil
  end
  -- A number as redis and JSON have it, within what a double counts.
  function w.ms(value) return string.format('%d', math.max(-9007199254740991, math.min(value, 9007199254740991))) end
  -- As JSON.stringify does it: cjson escapes the slash.
  function w.quoted(text) return (string.gsub(cjson.encode(text), '\\/', '/')) end

  function w.check()
    tools.check_types({ w.at_delayed, w.at_cron, w.at_done }, { w.at_order }, { w.at_waiting, w.at_dead }, {})
    for _, key in ipairs({ w.at_active, w.at_paused, w.at_workers }) do
      local found = redis.pcall('SCARD', key)
      if type(found) == 'table' then
        if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then error(found) end
        error({ err = 'WRONGTYPE the key ' .. key .. ' is a ' .. redis.call('TYPE', key).ok .. ', it must be a set' })
      end
    end
  end

  function w.read(id)
    local raw = redis.pcall('GET', w.at_data(id))
    if raw == false then return nil end
    if type(raw) ~= 'string' then return { kind = 'corrupt', why = 'its data is no string', body = { '', '' } } end
    return bridge_job(id, raw, tools.json_members(raw))
  end

  function w.place(id)
    if redis.call('SISMEMBER', w.at_active, id) == 1 then return 'active' end
    if redis.call('ZSCORE', w.at_delayed, id) then return 'delayed' end
    local status = w.text(w.at_status(id))
    if status == 'completed' and not redis.call('ZSCORE', w.at_cron, id) then return 'done' end
    -- A requeue that was cut off has left it in both.
    if status == 'dead' and redis.call('LPOS', w.at_dead, id) then return 'dead' end
    if redis.call('LPOS', w.at_waiting, id) then return 'waiting' end
    if redis.call('LPOS', w.at_dead, id) then return 'dead' end
    -- The original's own loop takes a job out of the list before it locks it, and never enters it among the active ones.
    return w.text(w.at_lock(id)) and 'active' or nil
  end

  function w.new_id(given) return given end

  -- Writes. Priorities from 7 on go to the head, as every client of the format does it.
  function w.push(id, priority)
    redis.call(priority >= 7 and 'LPUSH' or 'RPUSH', w.at_waiting, id)
  end

  -- Writes. Equals in the index are in the order of their ids, so theirs is kept beside it.
  function w.delay(id, due_ms)
    redis.call('ZADD', w.at_delayed, w.ms(due_ms), id)
    redis.call('HSET', w.at_order, id, redis.call('HINCRBY', w.at_order, '', 1))
  end

  -- The JSON of a new job. item.fields: priority, the JSON between the id and the time of the enqueue, and the JSON after it; or '' and
  -- the whole of a job, as the schedules of foreign clients have it.
  function w.json_of(id, fields, made_ms)
    if fields[2] ~= '' then return '{"jobId":' .. w.quoted(id) .. fields[2] .. w.ms(made_ms) .. fields[3] end
    local members = tools.json_members(fields[3])
    members.set('jobId', w.quoted(id))
    members.set('createdAt', w.ms(made_ms))
    members.set('attempts', '0')
    return members.text()
  end

  -- Writes. The data before the index: a copy that finds an id without an entry adds it again, but an entry without data is set aside
  -- by the next claim.
  function w.add(item, due_ms)
    local later, data = due_ms > now_ms, w.json_of(item.id, item.fields, now_ms)
    redis.call('MSET', w.at_data(item.id), data, w.at_status(item.id), later and 'delayed' or 'waiting')
    if later then w.delay(item.id, due_ms) else w.push(item.id, tonumber(item.fields[1])) end
  end

  bridge_claims(w)
  bridge_ends(w)
  bridge_looks(w)
  bridge_workers(w)
  bridge_cron(w)
  return w
end
