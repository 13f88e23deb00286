-- How runs on a foreign format end: by workers, by sweeps and by admin actions.
-- USES <format>: wire_again, wire_back, wire_bury, wire_count, wire_done, wire_drop, wire_ended, wire_list,
--        wire_locked, wire_mine, wire_next_due_ms, wire_place, wire_read, wire_remove, wire_set_aside
--      core/lease: error_note
--      core/limit: has_slots
--      core/wake: notify_waiters
--      foreign/claim: foreign_token, own_note, own_number, own_words
--      foreign/format: unpack_fields

-- Free the limit slot of a lease (rule 20), '' for none: a format has limits of names
-- alone.
local function free_held(prefix, id, limit)
  local held = limit and limit ~= '' and prefix .. 'held:' .. limit
  if held and has_slots(held) then redis.call('ZREM', held, id) end
end

-- Free limit slots that belong to no lease any more, left over from a call that was cut off (rule 20). At
-- most 100 of each limit per call.
local function mend_held(prefix, active, now_ms)
  for _, limit in ipairs(redis.call('HKEYS', prefix .. 'limits')) do
    local held = prefix .. 'held:' .. limit
    for _, id in ipairs(redis.pcall('ZRANGE', held, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100)) do
      if not redis.call('ZSCORE', active, id) then redis.call('ZREM', held, id) end
    end
  end
end

-- End a lease: first in the keys of the format (the wire), then its limit slots, and `active` last. So
-- the next copy of the call, or a sweep, finds a lease whose end was cut off. `run` already holds how it
-- ends: kind, due_ms, failures. Nothing is written on the wire if a foreign client holds the job by now.
-- `lease`: id, job, limits, kind, due_ms, failures, error, trace, value, took_ms, token, outcome, charge;
-- `redo`: an earlier copy may have done a part of it.
local function foreign_end(prefix, format, lease, now_ms, redo)
  local id, job = lease.id, lease.job
  local failure = { error = lease.error or '', trace = lease.trace or '', due_ms = lease.due_ms,
    charge = lease.charge, failures = lease.failures, redo = redo }
  if redo and wire_locked(format, id) and not wire_mine(format, id, lease.token) then
    lease.kind = 'left'
  elseif lease.kind == 'finish' then
    wire_done(format, id, job, lease.value, tonumber(lease.took_ms or 0), redo)
  elseif lease.kind == 'release' then
    wire_back(format, id, job)
  elseif lease.kind == 'retry' then
    -- Without a delay the job goes to the waiting jobs. In a redo its time may have come since the first
    -- copy: it stays among the delayed ones.
    failure.due_ms = lease.due_ms == 0 and now_ms or math.max(lease.due_ms, redo and now_ms + 1 or 0)
    wire_again(format, id, job, failure)
  elseif lease.kind == 'bury' then
    wire_bury(format, id, job, failure)
  elseif lease.kind == 'drop' then
    wire_drop(format, id, job, lease.outcome, lease.error)
  end
  free_held(prefix, id, lease.limits)
  local unstarted = lease.kind == 'release' and lease.fence and not lease.started
  if lease.limits and lease.limits ~= '' and unstarted then
    redis.call('ZREM', prefix .. 'rate:' .. lease.limits, id .. ':' .. lease.fence)
  end
  redis.call('ZREM', prefix .. 'active', id)
end

-- How a lease ends: what a call asks for, or where an earlier copy was cut off, what that one has recorded.
-- lease: id, run, job, fence, token, deadline_ms, limits, asked, redo; this adds kind, outcome and what
-- belongs to the kind.
local function plan_end(lease, fields, ending, outcome, now_ms)
  local kind, job = lease.asked, lease.job
  lease.kind, lease.failures = kind, job.failures or 0
  if kind == 'finish' then
    lease.value, lease.took_ms, lease.outcome = fields[1], fields[3], 'finished'
  elseif kind == 'drop' then
    lease.outcome, lease.error, lease.trace = fields[1], fields[1] == 'skipped' and fields[2] or nil, ''
  elseif kind == 'release' then
    lease.outcome, lease.started = 'released', fields[1] == '1'
  else
    lease.error, lease.trace, lease.charge = fields[1], fields[2], kind == 'retry' and fields[4] == '1'
    lease.failures = lease.failures + (lease.charge and 1 or 0)
    if lease.charge and lease.failures >= (job.attempts or 1) then lease.kind = 'bury' end
    lease.due_ms = lease.kind == 'retry' and tonumber(fields[3]) > 0 and now_ms + tonumber(fields[3]) or 0
    lease.outcome = lease.kind == 'retry' and 'retried' or 'buried'
  end
  if lease.redo then
    -- As the first copy recorded it, which may have counted the failure on the wire already.
    local was, due_ms, failures = string.match(ending, '^(%a+) (%d+) (%d+)$')
    lease.kind, lease.due_ms, lease.failures, lease.outcome = was or lease.kind, tonumber(due_ms or 0),
      tonumber(failures or 0), outcome
  end
end

-- End a lease as planned: its run first, then the wire. `waits_ms`: until this time a caller may wait for the
-- end of a job. Adds to `counters`, and to `events` if they are kept.
local function carry_out_end(prefix, format, lease, now_ms, waits_ms, counters, events)
  if not lease.redo then
    local noted = lease.error and error_note(lease.run, now_ms, lease.fence, 'failed', lease.error,
      lease.trace) or {}
    if lease.kind == 'finish' then
      noted = { 'value', lease.value or '', 'took_ms', lease.took_ms or 0, 'crashes', 0 }
    end
    redis.call('HSET', lease.run, 'nonce', '', 'ended', lease.token, 'outcome', lease.outcome, 'ended_ms',
      string.format('%d', now_ms), 'ending',
      string.format('%s %d %d', lease.kind, lease.due_ms or 0, lease.failures), unpack(noted))
  end
  -- Kept as long as late copies may come; the error of a skipped job, for which no wire has a place, for its
  -- time. Of a job that goes on it is kept for a week, in which a foreign
  -- client may run it.
  local kept_ms = lease.outcome == 'skipped' and ERROR_TTL_MS
    or (lease.kind == 'finish' or lease.kind == 'drop') and LATE_COPY_MS or FOREIGN_RUN_MS
  local until_ms = math.max(now_ms, lease.deadline_ms, lease.due_ms or 0) + kept_ms
  redis.call('PEXPIREAT', lease.run, string.format('%d', until_ms))
  foreign_end(prefix, format, lease, now_ms, lease.redo)
  local counter = ({ finish = 'finished', bury = 'buried', drop = lease.outcome })[lease.kind]
  if counter then counters[counter] = (counters[counter] or 0) + 1 end
  if waits_ms > now_ms and lease.kind ~= 'release' and lease.kind ~= 'retry' then
    notify_waiters(prefix, lease.id)
  end
  if not events then return end
  if lease.asked == 'retry' then
    table.insert(events, { 'failed', lease.id, lease.job.name, lease.error })
  end
  if lease.outcome ~= 'retried' then
    table.insert(events, { lease.outcome, lease.id, lease.job.name, lease.error })
  end
end

-- Forget the leases that foreign clients have taken over. Otherwise a sweep would count them as those of a
-- lost worker.
local function forget_taken(prefix, taken, now_ms)
  for _, lease in ipairs(taken) do
    redis.call('HSET', lease.run, 'nonce', '', 'ending', '', 'limits', '')
    redis.call('PEXPIREAT', lease.run, string.format('%d', now_ms + FOREIGN_RUN_MS))
    free_held(prefix, lease.id, lease.limits)
    redis.call('ZREM', prefix .. 'active', lease.id)
  end
end

-- End leases, each in its own way: finish, release, retry, bury or drop. Item number `at` is KEYS run:<id>
-- from `keys_at` on, ARGV kind, id, fence, nonce and packed fields from `arguments_at` on. The end of the
-- token is written first, with everything that a sweep needs to complete a call that was cut off. Then come
-- the wire and the rest of the engine's own keys. A lease that a foreign client has taken over is refused and
-- forgotten.
-- Returns 2 values per item, result (ok | repeated | stale) and outcome; only their number where all have
-- finished.
local function foreign_ends(prefix, format, keys_at, arguments_at, now_ms, events)
  local count = #KEYS - keys_at + 1
  local reply, planned, known, counters, finished, waits_ms, taken = {}, {}, {}, {}, 0, 0, {}
  for at = 1, count do
    local place = arguments_at + 5 * at - 5
    local kind, id, fence, nonce, packed = ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3],
      ARGV[place + 4]
    local state, outcome, run, deadline_ms, taken_over = foreign_token(prefix, format, id, fence, nonce)
    if taken_over then taken[#taken + 1] = { id = id, run = KEYS[keys_at + at - 1], limits = run.limits } end
    if known[id] then
      state, outcome = 'repeated', known[id]
    -- anchor: only-the-holder-ends-a-foreign-job
    elseif state == 'held' or (state == 'repeated' and deadline_ms and run.ending ~= '') then
      local job = wire_read(format, id)
      if not job or job.kind ~= 'J' then
        job = { kind = 'gone', name = '', failures = 0, attempts = 1, priority = 5,
          body = job and job.body or '' }
      end
      local lease = { id = id, run = KEYS[keys_at + at - 1], job = job, fence = fence, limits = run.limits,
        deadline_ms = deadline_ms, token = fence .. ':' .. nonce, asked = kind, redo = state == 'repeated' }
      plan_end(lease, unpack_fields(packed), run.ending, outcome, now_ms)
      if kind == 'finish' and state == 'held' then finished = finished + 1 end
      if not lease.redo then state, outcome = 'ok', lease.outcome end
      planned[#planned + 1], known[id] = lease, lease.outcome
    end
    reply[2 * at - 1], reply[2 * at] = state, outcome
  end
  forget_taken(prefix, taken, now_ms)
  if #planned > 0 then waits_ms = tonumber(redis.call('HGET', prefix .. 'stats', 'waits_ms') or 0) end
  for _, lease in ipairs(planned) do
    if lease.kind ~= 'release' then
      carry_out_end(prefix, format, lease, now_ms, waits_ms, counters, events)
    end
  end
  -- Each goes to the front of the waiting jobs, so the first one goes last.
  for at = #planned, 1, -1 do
    if planned[at].kind == 'release' then
      carry_out_end(prefix, format, planned[at], now_ms, waits_ms, counters, events)
    end
  end
  for counter, ended in pairs(counters) do redis.call('HINCRBY', prefix .. 'stats', counter, ended) end
  return finished == count and count or reply
end

-- Reap one lease: its token is revoked, and the job returns to the front of the waiting jobs. After too many
-- crashes it becomes a dead letter (rule 12). A job that a foreign client has moved meanwhile stays where it
-- is.
-- Returns reaped | buried | ended (only its index entry was left), fence, nonce ('-' where there was none any
-- more) and crashes.
local function reap_foreign(prefix, id, now_ms, format, events)
  local run, job = prefix .. 'run:' .. id, wire_read(format, id)
  local fence, nonce, crashes, marked, limits, owner, outcome, error_text, taken, ending, value, took_ms,
    ended = unpack(own_words(run, 'fence', 'nonce', 'crashes', 'marked', 'limits', 'owner', 'outcome',
      'error', 'taken', 'ending', 'value', 'took_ms', 'ended'))
  fence, nonce, crashes, owner = fence or '0', nonce or '', own_number(crashes), owner or ''
  local place, token = wire_place(format, id), nonce ~= '' and fence .. ':' .. nonce or ended or ''
  -- Nor is a job moved that a foreign client runs by now.
  local here = (place == 'active' or place == nil)
    and not (wire_locked(format, id) and not wire_mine(format, id, token))
  free_held(prefix, id, limits)
  if nonce == '' then
    -- An end was cut off after it cleared the token: the rest of it is done here.
    local kind, due_ms, failures = string.match(ending or '', '^(%a+) (%d+) (%d+)$')
    if taken == fence or not kind then
      if here and job then wire_back(format, id, job) end
    else
      job = job or { kind = 'gone', name = '', failures = 0, attempts = 1, body = '' }
      foreign_end(prefix, format, { id = id, job = job, kind = kind, due_ms = tonumber(due_ms),
        failures = tonumber(failures), outcome = outcome, error = error_text, value = value,
        took_ms = took_ms, token = token }, now_ms, true)
    end
    return { 'ended', fence, '-', crashes }
  end
  -- The first crash is counted without a condition; after it only a lease that was marked as started counts
  -- another one.
  -- anchor: foreign-crash-is-charged-when-marked
  if crashes == 0 or marked == fence .. ':' .. nonce then crashes = crashes + 1 end
  local text = 'the worker ' .. owner .. ' was lost'
  local note = error_note(run, now_ms, fence, 'lost', text, '')
  local name = job and job.name or ''
  -- A format without a bound for crashes gets the default of Lanes.
  local crashes_max = job and job.crashes_max or CRASHES_MAX
  if here and job and (job.kind ~= 'J' or crashes >= crashes_max) then
    local reason = job.kind ~= 'J' and (job.why or 'corrupt')
      or string.format('crashed %d times, %d are allowed', crashes, crashes_max - 1)
    note[2] = reason
    own_note(run, now_ms + FOREIGN_RUN_MS, 'nonce', '', 'taken', '', 'outcome', 'buried', 'crashes', crashes,
      'limits', '', 'ending', string.format('bury 0 %d', job.failures or 0), unpack(note))
    if job.kind == 'J' then
      wire_bury(format, id, job, { error = reason, trace = '', charge = false, failures = job.failures })
    else
      wire_set_aside(format, id, nil, reason)
    end
    redis.call('HINCRBY', prefix .. 'stats', 'buried', 1)
    notify_waiters(prefix, id)
    if events then table.insert(events, { 'buried', id, name, reason }) end
    return { 'buried', fence, nonce, crashes }
  end
  -- `ended` and `outcome` are those of the lease before this one: late copies of its end are still answered
  -- from them (rule 5). A foreign client may run the job from here on without writing to the engine's keys,
  -- so `run` must expire.
  own_note(run, now_ms + FOREIGN_RUN_MS, 'nonce', '', 'taken', fence, 'crashes', crashes, 'limits', '',
    unpack(note))
  if here and job then wire_back(format, id, job) end
  if events then table.insert(events, { 'reaped', id, name, owner }) end
  return { 'reaped', fence, nonce, crashes }
end

-- End a job by an admin action (rule 26). First its token is revoked, and the call recorded as its end, which
-- outlives every late copy (rule 3). Then the job is removed from the wire, and callers that wait for its end
-- are woken. If the call is cut off in between, its next copy finds its own op_id in `run` and does the rest.
-- job: the job as read from the wire, nil where there is none; ending: outcome (cancelled | discarded),
-- op_id, not_after_ms
local function end_by_hand(prefix, id, job, state, ending, now_ms, format, events)
  local run = prefix .. 'run:' .. id
  if state == 'finished' then
    -- `run` stays: late copies of the finish are answered from it.
    wire_remove(format, id, 'done')
    return
  end
  free_held(prefix, id, own_words(run, 'limits')[1])
  own_note(run, math.max(ending.not_after_ms, now_ms) + LATE_COPY_MS, 'nonce', '', 'ended', ending.op_id,
    'outcome', ending.outcome, 'limits', '', 'ended_ms', string.format('%d', now_ms))
  if state == 'active' and job and job.kind == 'J' then
    wire_drop(format, id, job, ending.outcome)
  else
    wire_remove(format, id, state)
  end
  redis.call('ZREM', prefix .. 'active', id)
  notify_waiters(prefix, id)
  if events then table.insert(events, { ending.outcome, id, job and job.name or '' }) end
end

-- Whether a job has ended a short time ago, so that its id is still known (rule 3), whatever the format
-- itself keeps of it.
local function foreign_over(prefix, id, now_ms)
  local run = own_words(prefix .. 'run:' .. id, 'nonce', 'outcome', 'ended_ms')
  if run[1] ~= '' or not run[2] or run[2] == 'retried' or run[2] == 'released' then return false end
  return (tonumber(run[3] or nil) or now_ms) + LATE_COPY_MS >= now_ms
end

-- Retention, where the queue has set it; without it the formats keep ended jobs by their own rules. At most
-- 100 jobs of each state are removed in a call, the oldest first. Returns whether more are over the bounds.
local function keep_ended(prefix, now_ms, format)
  local kept = redis.call('HMGET', prefix .. 'retention', 'done_max', 'done_age_ms', 'dead_max',
    'dead_age_ms')
  local more = false
  for at, state in ipairs({ 'done', 'dead' }) do
    local most, age_ms = tonumber(kept[2 * at - 1]), tonumber(kept[2 * at])
    local over = most and wire_count(format, state) - most or 0
    if over > 0 or age_ms then
      local page, removed, untimed_young = wire_list(format, state, 0, 100, false), 0, false
      for place = 1, #page, 2 do
        local id, at_ms, old = page[place], tonumber(page[place + 1] or 0) or 0, false
        if age_ms and at_ms > 0 then
          old = at_ms < now_ms - age_ms
        elseif age_ms and not untimed_young then
          -- Lists without times have an order: behind a young entry there are only younger ones. An entry
          -- that has outlived its job would hold up those behind it for ever.
          at_ms = (wire_ended(format, id) or {}).ended_ms or 0
          old = at_ms > 0 and at_ms < now_ms - age_ms or at_ms == 0 and not wire_read(format, id)
          untimed_young = at_ms > 0 and not old
        end
        if over > removed or old then
          wire_remove(format, id, state)
          removed = removed + 1
        end
      end
      more = more or removed == 100
    end
  end
  return more
end

-- When the next delayed job is due (ms); later than any time if there is none.
local function foreign_next_due_ms(format)
  return wire_next_due_ms(format) or math.huge
end

-- Whether a job is due sooner than the next one was before. It needs a marker, too: whoever takes the marker
-- claims, and is told when the job is due. Otherwise it would wait for a sweep (rule 13).
local function foreign_due_sooner(format, before_ms)
  return foreign_next_due_ms(format) < before_ms -- anchor: first-due-foreign-job-leaves-a-marker
end
