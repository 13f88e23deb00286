#!lua flags=allow-oom
-- Requeue dead jobs with all their attempts. Each returns to its place in its lane and takes its unique key
-- again, unless another job holds it (rule 23). A job in another state is left alone, and its state is
-- returned (rule 7).
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
-- REPLY srv_us, done | repeated | refused, for each item: done | changed | held | corrupt, the state that it
--       was in, the id of the job that has its unique key, else -
-- USES children/children: leave_dead
--      core/call: administered, check_types, recorded_words, server_us
--      core/envelope: job_head
--      core/history: past_beyond_death
--      core/job: state_of, unique_holder
--      core/lane: to_lane
--      core/run: run_is_readable, run_look, run_write
--      core/wake: append_events, wake_push

check_types({ active, dead }, { sweep, parked, stats }, {})
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms) -- anchor: late-requeue-is-void
if known then
  -- The first copy wrote its record and was cut off before it removed the entries of `dead`: that is done
  -- now.
  for at = 4, known == 'repeated' and #ARGV or 3 do
    local since_ms = tonumber(redis.call('ZSCORE', dead, ARGV[at]) or math.huge)
    if tonumber(run_look(prefix .. 'run:' .. ARGV[at], 'requeued_ms')[1] or 0) > since_ms then
      leave_dead(prefix, ARGV[at])
    end
  end
  return { srv_us, known, recorded_words(op) }
end
local results, back, taken, wakes = {}, {}, {}, {}
for at = 1, (#KEYS - 6) / 2 do
  local id, run, job = ARGV[3 + at], KEYS[6 + 2 * at], job_head(KEYS[5 + 2 * at])
  local since_ms = redis.call('ZSCORE', dead, id)
  local result, state, holder = 'done', 'dead', nil
  if since_ms and job and job.kind ~= 'T' then
    since_ms = tonumber(since_ms)
    -- A copy that was cut off has requeued the job already: only its entry in `dead` is left over.
    local kept = run_look(run, 'requeued_ms', 'past')
    local runs = tonumber(kept[1] or 0) > since_ms and redis.call('ZSCORE', active, id)
    if job.kind == 'corrupt' or not run_is_readable(run) then
      result = 'corrupt'
    else
      check_types({ prefix .. 'lane:' .. job.lane, prefix .. 'ready:' .. job.class }, {},
        { prefix .. 'wake:' .. job.class })
      holder = job.unique and (taken[job.unique] or unique_holder(prefix, job.unique, '', id))
      if holder and not runs then
        result = 'held'
      else
        if job.unique then taken[job.unique] = id end
        back[#back + 1] = { id = id, run = run, job = job, runs = runs, past = past_beyond_death(kept[2]),
          ms = math.max(now_ms, since_ms + 1) }
      end
    end
  else
    result, state = 'changed', state_of(prefix, job, id)
  end
  for _, word in ipairs({ result, state, result == 'held' and holder or '-' }) do
    results[#results + 1] = word
  end
end
local noted = redis.call('HMGET', stats, 'turn', 'events')
local virtual_time, events = tonumber(noted[1] or 0), noted[2] and { keep = noted[2] }
for _, item in ipairs(back) do
  if not item.runs then
    local job = item.job
    if job.unique then redis.call('SET', prefix .. 'unique:' .. job.unique, item.id) end
    -- anchor: requeue-resets-crashes
    run_write(item.run, 'failures', 0, 'crashes', 0, 'requeued_ms', string.format('%d', item.ms), 'past', item.past)
    -- The stored error belongs to this death, not to how the next run ends.
    redis.call('DEL', prefix .. 'result:' .. item.id)
    -- Into the lane first, out of `dead` later: in between the job is in both, and `requeued_ms` shows that
    -- the lane counts.
    local wake = to_lane(prefix, item.id, job, virtual_time)
    if wake then wakes[wake] = true end
    if events then events[#events + 1] = { 'requeued', item.id, job.name } end
  end
end
for list in pairs(wakes) do wake_push(list) end
redis.call('SET', op, table.concat(results, ' '), 'PXAT', not_after_ms + LATE_COPY_MS)
for _, item in ipairs(back) do leave_dead(prefix, item.id) end
if events then append_events(prefix .. 'events', events) end
return { srv_us, 'done', results }
