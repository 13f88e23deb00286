#!lua flags=allow-oom
-- End the delay of jobs: each that is in `due` goes to its place in its lane. A job in another state is left
-- alone, and its state is returned (rule 7).
--
-- HEAD core/call
-- KEYS
--   due      zset    sequence and id by due_ms
--   parked   hash    lane -> the limit that it waits for
--   stats    hash    counters
--   op       string  op:<op id>, record of this call: its reply
--   items    1 for each item: job:<id>
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   items         1 for each item: id
-- REPLY srv_us, done | repeated | refused, for each item: done | changed, the state that it was in, -
-- USES core/call: administered, check_types, recorded_words, server_us
--      core/envelope: checked_head
--      core/job: state_of
--      core/lane: due_member, to_lane
--      core/wake: append_events, wake_push

check_types({ due }, { sweep, parked, stats }, {})
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known, recorded_words(op) } end
local results, jobs, wakes = {}, {}, {}
for at = 1, #KEYS - 5 do
  local id, job = ARGV[3 + at], checked_head(KEYS[5 + at])
  local state = state_of(prefix, job, id)
  if state == 'delayed' then
    check_types({ prefix .. 'lane:' .. job.lane, prefix .. 'ready:' .. job.class }, {},
      { prefix .. 'wake:' .. job.class })
    jobs[#jobs + 1] = { id = id, job = job }
  end
  for _, word in ipairs({ state == 'delayed' and 'done' or 'changed', state, '-' }) do
    results[#results + 1] = word
  end
end
local noted = redis.call('HMGET', stats, 'turn', 'events')
local virtual_time, events = tonumber(noted[1] or 0), noted[2] and { keep = noted[2] }
for _, item in ipairs(jobs) do
  local wake = to_lane(prefix, item.id, item.job, virtual_time)
  if wake then wakes[wake] = true end
  if events then events[#events + 1] = { 'promoted', item.id, item.job.name } end
end
-- The record is written before the jobs leave `due`. A job that is in both places still waits, and if it has
-- run meanwhile, its promotion does not start it again.
redis.call('SET', op, table.concat(results, ' '), 'PXAT', not_after_ms + LATE_COPY_MS)
for _, item in ipairs(jobs) do redis.call('ZREM', due, due_member(item.job.sequence, item.id)) end
for list in pairs(wakes) do wake_push(list) end
if events then append_events(prefix .. 'events', events) end
return { srv_us, 'done', results }
