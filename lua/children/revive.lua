#!lua flags=allow-oom
-- Let dead jobs that were buried with a parent wait for their parents again (rule 25). Each goes into
-- `blocked`, or where all have finished into its lane, or into `due` while its delay lasts. It has all its
-- attempts, and takes its unique key again, unless another job holds it (rule 23). One of which a parent is
-- lost still stays dead. So does one that has died by itself, or was requeued since (rule 7).
--
-- HEAD core/call
-- KEYS
--   parked   hash    lane -> the limit that it waits for
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   stats    hash    counters
--   op       string  op:<op id>, record of this call: its reply
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   items         1 for each item: id
-- REPLY srv_us, done | repeated | refused, for each item: done | changed | held | corrupt | orphan, the state
--       that it was in, the id of the job that has its unique key, or of the parent that is lost, else -
-- USES children/children: block_job, keep_results, lacked_by, lacked_parents, leave_dead, place_child
--      core/call: administered, check_types, recorded_words, server_us
--      core/envelope: job_head
--      core/history: past_beyond_death
--      core/job: state_of, unique_holder
--      core/lane: due_member
--      core/run: run_is_readable, run_look, run_write
--      core/wake: append_events, wake_push

check_types({ active, dead, prefix .. 'due', prefix .. 'blocked', prefix .. 'keeping' },
  { sweep, parked, stats }, {})
redis.call('SCARD', prefix .. 'feeding')
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then
  -- The first copy wrote its record and was cut off before its last writes: they are done now.
  for at = 4, known == 'repeated' and #ARGV or 3 do
    local since_ms = tonumber(redis.call('ZSCORE', dead, ARGV[at]) or math.huge)
    if tonumber(run_look(prefix .. 'run:' .. ARGV[at], 'requeued_ms')[1] or 0) > since_ms then
      leave_dead(prefix, ARGV[at])
    end
  end
  return { srv_us, known, recorded_words(op) }
end
-- Whether a job stands among those that wait or run.
local function stands(job, id)
  return redis.call('ZSCORE', active, id) or redis.call('ZSCORE', prefix .. 'blocked', id)
    or redis.call('ZSCORE', prefix .. 'lane:' .. job.lane, id)
    or redis.call('ZSCORE', prefix .. 'due', due_member(job.sequence, id))
end
local results, back, taken, revived, wakes = {}, {}, {}, {}, {}
for at = 1, (#KEYS - 6) / 2 do
  local id, run, job = ARGV[3 + at], KEYS[6 + 2 * at], job_head(KEYS[5 + 2 * at])
  local since_ms, kept = redis.call('ZSCORE', dead, id), run_look(run, 'requeued_ms', 'past')
  local result, state, holder = 'done', 'dead', nil
  if not since_ms or not job or job.kind == 'T' then
    result, state = 'changed', state_of(prefix, job, id)
  elseif job.kind == 'corrupt' or not run_is_readable(run) then
    result = 'corrupt'
  -- A copy that was cut off has revived the job already, and only its entry in `dead` is left over.
  -- anchor: revival-that-was-cut-off-is-completed
  elseif tonumber(kept[1] or 0) > tonumber(since_ms) and stands(job, id) then
    revived[id] = true
    back[#back + 1] = { id = id, stands = true }
  elseif not lacked_by(prefix, id, job)[1] then
    result = 'changed'
  else
    check_types({ prefix .. 'lane:' .. job.lane, prefix .. 'ready:' .. job.class }, {},
      { prefix .. 'wake:' .. job.class })
    local waits_for, left, lost = lacked_parents(prefix, id, job, revived)
    holder = lost or job.unique and (taken[job.unique] or unique_holder(prefix, job.unique, '', id))
    if lost then
      result = 'orphan'
    elseif holder then
      result = 'held'
    else
      if job.unique then taken[job.unique] = id end
      revived[id] = true
      back[#back + 1] = { id = id, run = run, job = job, waits_for = waits_for, left = left,
        past = past_beyond_death(kept[2]), ms = math.max(now_ms, tonumber(since_ms) + 1) }
    end
  end
  for _, word in ipairs({ result, state, holder or '-' }) do results[#results + 1] = word end
end
local noted = redis.call('HMGET', stats, 'turn', 'events')
local virtual_time, events = tonumber(noted[1] or 0), noted[2] and { keep = noted[2] }
for _, item in ipairs(back) do
  local id, job = item.id, item.job
  if not item.stands then
    if job.unique then redis.call('SET', prefix .. 'unique:' .. job.unique, id) end
    run_write(item.run, 'failures', 0, 'crashes', 0, 'requeued_ms', string.format('%d', item.ms), 'heir', '1',
      'past', item.past)
    -- The stored error belongs to this death.
    redis.call('DEL', prefix .. 'result:' .. id)
    if item.left[1] then keep_results(prefix, id, item.left, now_ms) end
    -- Among those that wait first, out of `dead` later: in between it is in both, and `requeued_ms` shows
    -- that it waits.
    local wake
    -- anchor: revived-child-waits-for-its-parents
    if item.waits_for[1] then
      block_job(prefix, id, item.waits_for, {}, now_ms)
    else
      wake = place_child(prefix, job, id, now_ms, virtual_time)
    end
    if wake then wakes[wake] = true end
    if events then events[#events + 1] = { 'requeued', id, job.name } end
  end
end
for list in pairs(wakes) do wake_push(list) end
redis.call('SET', op, table.concat(results, ' '), 'PXAT', not_after_ms + LATE_COPY_MS)
for _, item in ipairs(back) do leave_dead(prefix, item.id) end
if events then append_events(prefix .. 'events', events) end
return { srv_us, 'done', results }
