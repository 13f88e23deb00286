-- Schedules on the wire. Each is an entry of `jobs:cron` under the name of the schedule, with the job's JSON beside it, as the original
-- has it; the definition that ticks is ours (`cron:<name>`). An entry of a foreign client becomes such a definition when it is due. The
-- score on the wire is the truth: whoever has moved it has said when the next tick is.
local function bridge_cron(w)
  local index = w.prefix .. 'cron'
  local function own(name) return w.prefix .. 'cron:' .. name end
  local function packed(...)
    local parts = {}
    for _, field in ipairs({ ... }) do parts[#parts + 1] = struct.pack('>I4', #field) .. field end
    return table.concat(parts)
  end
  local function decoded(text)
    local read, value = pcall(cjson.decode, text or '')
    return read and type(value) == 'table' and value or {}
  end

  local function schedule_of(job)
    local schedule = decoded(job and job.kind == 'J' and w.members(job.raw).raw('schedule'))
    return type(schedule.cron) == 'string' and schedule or nil
  end

  -- Writes: an entry of a foreign client as a definition of ours.
  local function adopt(id, score_ms, job, schedule)
    local members = w.members(job.raw)
    members.set('schedule', '{}')
    local item = packed('', packed(w.ms(job.priority), '', members.text()))
    local zone = type(schedule.timezone) == 'string' and schedule.timezone ~= '' and ',"zone":' .. w.quoted(schedule.timezone) or ''
    redis.call('HSET', own(id), 'version', redis.call('HINCRBY', w.prefix .. 'stats', 'schedules', 1),
      'timing', '{"cron":' .. w.quoted(schedule.cron) .. zone .. '}', 'policy', '{}', 'job', item, 'enabled', '1',
      'next_ms', w.ms(score_ms), 'anchor_ms', w.ms(score_ms), 'wire', '1', 'error', '')
    redis.call('ZADD', index, w.ms(score_ms), id)
  end

  local function tell(name, next_ms)
    redis.call('HSET', own(name), 'next_ms', w.ms(next_ms))
    redis.call('ZADD', index, w.ms(next_ms), name)
  end

  -- Writes, before a schedule ticks: what a foreign client has moved or taken away meanwhile becomes known to our side.
  function w.settle_schedule(name)
    local known = redis.call('HMGET', own(name), 'wire', 'next_ms')
    -- One that does not tick is not on the wire.
    if not known[1] or known[2] == '0' then return end
    local score = redis.call('ZSCORE', w.at_cron, name)
    if not score then
      redis.call('DEL', own(name))
      redis.call('ZREM', index, name)
    elseif tonumber(score) ~= tonumber(known[2]) then
      tell(name, tonumber(score))
    end
  end

  -- Writes: entries that foreign clients have put become known to our side when they are due. Returns those that are new, for each its
  -- name, version, next tick, anchor, timing and policy; the next sweep finds the others in our own index.
  function w.due_schedules(most)
    local now, due = w.ms(w.now_ms), {}
    local found = redis.call('ZRANGE', w.at_cron, '-inf', now, 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
    for at = 1, #found, 2 do
      local id, score_ms = found[at], math.max(0, math.floor(tonumber(found[at + 1])))
      local known = redis.call('HMGET', own(id), 'version', 'next_ms', 'error')
      local job = (not known[1] or known[3] ~= '') and w.read(id) or nil
      local schedule = schedule_of(job)
      if known[1] and known[3] == '' then
        if tonumber(known[2]) ~= score_ms then tell(id, score_ms) end
      elseif not known[1] and not job then
        redis.call('ZREM', w.at_cron, id)
      elseif not known[1] and schedule then
        adopt(id, score_ms, job, schedule)
        for _, word in ipairs(redis.call('HMGET', own(id), 'version', 'next_ms', 'anchor_ms', 'timing', 'policy')) do due[#due + 1] = word end
        table.insert(due, #due - 4, id)
      else
        -- Nobody can say when it ticks: it is looked at again in a minute, and holds up nothing.
        redis.call('HSET', w.prefix .. 'aside', id, 'a schedule that cannot be read')
        redis.call('ZADD', w.at_cron, 'XX', w.ms(w.now_ms + 60000), id)
      end
    end
    return due
  end

  -- Writes: a schedule was put, has ticked (next_ms: its next one), was disabled or could not tick (0), or removed (no `template`).
  -- Intervals and months are not on the wire: those tick for our side alone.
  function w.scheduled(name, next_ms, given)
    local known = redis.call('HMGET', own(name), 'timing', 'error')
    local timing, entry = decoded(known[1]), w.read(name)
    if not given then
      redis.call('ZREM', w.at_cron, name)
      if schedule_of(entry) then redis.call('DEL', w.at_data(name), w.at_status(name)) end
    elseif next_ms == 0 and known[2] and known[2] ~= '' then
      redis.call('ZADD', w.at_cron, 'XX', w.ms(w.now_ms + 60000), name)
    elseif next_ms == 0 or not timing.cron then
      redis.call('ZREM', w.at_cron, name)
    elseif schedule_of(entry) or not entry then
      local made_ms = entry and entry.enqueued_ms > 0 and entry.enqueued_ms or w.now_ms
      local members = w.members(w.json_of(name, w.fields(w.fields(given)[2]), made_ms))
      members.set('schedule', '{"cron":' .. w.quoted(timing.cron) .. ',"timezone":' .. w.quoted(timing.zone or 'UTC') .. '}')
      -- What a foreign client has written stays as it is.
      local adopted = w.fields(given)[1] == ''
      if not (entry and adopted) then redis.call('MSET', w.at_data(name), members.text(), w.at_status(name), 'cron') end
      redis.call('HSET', own(name), 'wire', '1')
      redis.call('ZADD', w.at_cron, w.ms(next_ms), name)
    end
  end

  -- The entry of the schedule itself is waiting or active: a foreign client's pass has enqueued it for this tick.
  function w.admit(item)
    local name = string.match(item.id, '^cron:(.*):%d+$')
    if not name or not redis.call('ZSCORE', w.at_cron, name) then return nil end
    local there = redis.call('SISMEMBER', w.at_active, name) == 1 or redis.call('LPOS', w.at_waiting, name)
    return there and name or nil
  end
end
