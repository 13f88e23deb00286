-- Schedules: how they are defined, changed and removed, and which are due.
-- USES core/call: administered, check_types, fields_of, server_us

-- The start of each call that changes a schedule: check key types, read the time, and detect repeats and late
-- calls. Returns srv_us, and the reply where an earlier copy has done it or the call comes too late, else
-- nil. `keys`: sweep, cron, schedule, op.
local function schedule_call(keys, given_ms, not_after_ms)
  check_types({ keys.cron }, { keys.sweep, keys.schedule }, {}, { keys.op })
  local srv_us = server_us(given_ms, keys.sweep)
  local known = administered(keys.op, not_after_ms, math.floor(srv_us / 1000))
  return srv_us, known and { srv_us, known, redis.call('GET', keys.op) or '' }
end

-- Define a schedule, or change it (rule 24). If its timing stays the same, its next tick and its anchor stay;
-- if nothing changes, nothing is written to it. Returns the reply. `given`: name, timing, policy, job,
-- next_ms, anchor_ms, enabled, most. `mirror` updates the format's own schedule: it is called after the
-- writes with name, next tick and job.
-- keys: cron, schedule, stats, op
local function schedule_put(keys, given, srv_us, not_after_ms, mirror)
  local was = fields_of(keys.schedule, { 'version', 'timing', 'policy', 'job', 'enabled', 'next_ms' })
  if not was.version and redis.call('ZCARD', keys.cron) >= given.most then
    return { srv_us, 'done', 'full' }
  end
  local enabled, next_ms = given.enabled, given.next_ms
  if enabled == '' then enabled = was.version and was.enabled or '1' end
  local retimed = was.timing ~= given.timing
  -- A schedule that was stopped by an error ticks again: the caller could compute its next tick.
  if not retimed and was.enabled == '1' and was.next_ms ~= '0' then next_ms = was.next_ms end
  if enabled ~= '1' then next_ms = '0' end
  local changed = retimed or was.policy ~= given.policy or was.job ~= given.job

  -- The index before the hash: sweeps drop an entry without a hash, but a schedule that is not in the index
  -- would never tick. Until the hash is written, the entry has the earlier of the old and the new time. If
  -- the script is cut off, a sweep corrects an entry that is too early, but one that is too late would delay
  -- the tick.
  local due_ms = enabled == '1' and next_ms or '+inf'
  redis.call('ZADD', keys.cron, 'LT', due_ms, given.name)
  local fields = { 'enabled', enabled, 'next_ms', next_ms }
  if changed or next_ms ~= was.next_ms then
    fields[#fields + 1], fields[#fields + 2] = 'error', ''
  end
  if retimed then
    fields[#fields + 1], fields[#fields + 2] = 'anchor_ms', given.anchor_ms
  end
  if changed then
    local version = redis.call('HINCRBY', keys.stats, 'schedules', 1)
    for _, word in ipairs({ 'version', version, 'timing', given.timing, 'policy', given.policy, 'job',
        given.job }) do
      fields[#fields + 1] = word
    end
  end
  redis.call('HSET', keys.schedule, unpack(fields))
  redis.call('ZADD', keys.cron, due_ms, given.name)
  if mirror then mirror(given.name, tonumber(next_ms), given.job) end
  local found = not was.version and 'new' or changed and 'changed' or 'same'
  redis.call('SET', keys.op, found, 'PXAT', not_after_ms + LATE_COPY_MS)
  return { srv_us, 'done', found }
end

-- Let a schedule tick from `next_ms` on, or stop it (0). A schedule that ticks already keeps its next tick.
-- Returns the reply.
-- `mirror`: as in schedule_put.
-- keys: cron, schedule, op
local function schedule_enable(keys, name, version, next_ms, srv_us, not_after_ms, mirror)
  local was = redis.call('HMGET', keys.schedule, 'version', 'enabled', 'next_ms', 'job')
  local enabled = next_ms ~= '0' and '1' or '0'
  local found = not was[1] and 'gone' or was[1] ~= version and 'other'
    or was[2] == enabled and was[3] ~= '0' and 'same' or 'changed'
  if found == 'changed' then
    -- In the same order as in schedule_put.
    local due_ms = enabled == '1' and next_ms or '+inf'
    redis.call('ZADD', keys.cron, 'LT', due_ms, name)
    redis.call('HSET', keys.schedule, 'enabled', enabled, 'next_ms', next_ms, 'error', '')
    redis.call('ZADD', keys.cron, due_ms, name)
  else
    next_ms = was[3]
  end
  if mirror and (found == 'changed' or found == 'same') then mirror(name, tonumber(next_ms), was[4]) end
  redis.call('SET', keys.op, found, 'PXAT', not_after_ms + LATE_COPY_MS)
  return { srv_us, 'done', found }
end

-- Remove a schedule. Returns the reply. `mirror`: as in schedule_put, without a job.
-- keys: cron, schedule, op
local function schedule_remove(keys, name, srv_us, not_after_ms, mirror)
  local found = redis.call('ZSCORE', keys.cron, name) and 'changed' or 'gone'
  -- The index entry becomes due first and is removed last. If the script is cut off in between, the next copy
  -- still finds it, and the next sweep corrects it.
  redis.call('ZADD', keys.cron, 'XX', 1, name)
  redis.call('DEL', keys.schedule)
  if mirror and found == 'changed' then mirror(name, 0) end
  redis.call('ZREM', keys.cron, name)
  redis.call('SET', keys.op, found, 'PXAT', not_after_ms + LATE_COPY_MS)
  return { srv_us, 'done', found }
end

-- What a tick reads of its schedule, by name.
local function tick_state(schedule)
  return fields_of(schedule, { 'version', 'next_ms', 'enabled', 'ticked', 'job', 'last_job', 'last_ms',
    'count', 'missed', 'skipped' })
end

-- Write the state of a schedule that has ticked; with an error it ticks no more. `was`: what tick_state has
-- read.
-- given: next_ms, made (how many jobs), missed, skipped, error, ticked, and with jobs last_job and last_ms
local function note_tick(cron, schedule, name, was, given)
  local state = { 'next_ms', given.next_ms, 'count', tonumber(was.count or 0) + given.made,
    'missed', tonumber(was.missed or 0) + given.missed, 'skipped', tonumber(was.skipped or 0) + given.skipped,
    'error', given.error, 'ticked', given.ticked }
  if given.made > 0 then
    for _, word in ipairs({ 'last_job', given.last_job, 'last_ms', given.last_ms }) do
      state[#state + 1] = word
    end
  end
  redis.call('HSET', schedule, unpack(state))
  redis.call('ZADD', cron, given.error == '' and given.next_ms or '+inf', name)
end

-- The tick (ms) up to which a schedule makes no jobs any more; `last_ms`: the last one that made a job, as it
-- is stored. Whoever enables or changes a schedule may have computed its next tick before that tick made its
-- job. A last tick that is still to come is of a clock that was ahead.
local function ticked_until(last_ms, now_ms)
  local ticked_ms = tonumber(last_ms or 0)
  return ticked_ms <= now_ms and ticked_ms or 0
end

-- The first schedules whose tick has come, at most `limit`: for each its name, version, next tick, anchor,
-- timing and policy. Entries of the index that are left over from a call that was cut off are corrected here.
-- If a schedule's key has another type, the entry is tried again in a minute, so that it does not block the
-- others.
local function due_schedules(prefix, now_ms, limit)
  local cron, due = prefix .. 'cron', {}
  local found = redis.call('ZRANGE', cron, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  for at = 1, #found, 2 do
    local name = found[at]
    local words = redis.pcall('HMGET', prefix .. 'cron:' .. name, 'version', 'next_ms', 'anchor_ms', 'timing',
      'policy', 'enabled')
    local next_ms = words[6] == '1' and tonumber(words[2]) or 0
    if words.err then
      redis.call('ZADD', cron, now_ms + 60000, name)
    elseif not words[1] then
      redis.call('ZREM', cron, name)
    elseif next_ms ~= tonumber(found[at + 1]) then
      -- Another program may have written a value that is no time.
      redis.call('ZADD', cron, next_ms > 0 and next_ms <= U48_MAX and string.format('%d', next_ms) or '+inf',
        name)
    else
      due[#due + 1] = name
      for field = 1, 5 do due[#due + 1] = words[field] or '' end
    end
  end
  return due
end

-- Add a schedule to a page as 14 words: its name, its definition and its state. `next_ms`: its next tick
-- where the key has an older one.
local function add_schedule(page, name, key, next_ms)
  local words = redis.pcall('HMGET', key, 'version', 'timing', 'policy', 'job', 'enabled', 'anchor_ms',
    'next_ms', 'last_ms', 'last_job', 'count', 'missed', 'skipped', 'error')
  -- A key of another type must not hide the others.
  if words.err then words = { '0', [13] = words.err } end
  -- An entry of the index without a schedule is left over from a call that was cut off.
  if not words[1] then return end
  page[#page + 1] = name
  words[7] = next_ms or words[7]
  for at = 1, 13 do page[#page + 1] = words[at] or '' end
end
