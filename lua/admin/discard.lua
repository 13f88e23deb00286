#!lua flags=allow-oom
-- End jobs by an admin action, each only in the state that the caller saw (rules 7 and 26). A running job
-- loses its token at once. Of a finished job only its entry and its result are removed.
--
-- HEAD core/call
-- KEYS
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   done     zset    id by time
--   stats    hash    counters
--   op       string  op:<op id>, record of this call: its reply
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   op_id         identity of the call, which its tombstones carry
--   outcome       number: 2 discarded, 7 cancelled
--   state         waiting | blocked | delayed | active | dead | finished
--   items         1 for each item: id
-- REPLY srv_us, done | repeated | refused, for each item: done | changed, the state that it was in, -
-- USES core/call: administered, check_types, recorded_words, server_us
--      core/envelope: job_head
--      core/history: notes_kept
--      core/job: end_job, state_of
--      core/wake: append_events, wake_push

check_types({ due, active, dead, done }, { sweep, stats }, {})
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known, recorded_words(op) } end
local results, ends, wakes = {}, {}, {}
for at = 1, (#KEYS - 7) / 2 do
  local id, job = ARGV[6 + at], job_head(KEYS[6 + 2 * at])
  local now = state_of(prefix, job, id)
  if job and job.kind == 'J' then
    check_types({ prefix .. 'lane:' .. job.lane }, {}, { prefix .. 'wake:' .. job.class })
  end
  -- The tombstone is of this very call: an earlier copy was cut off, and the rest of it is done now.
  local mine = job and job.kind == 'T' and job.nonce == op_id
  -- anchor: discard-ends-the-named-state
  if now == state or mine then ends[#ends + 1] = { id = id, job = job } end
  -- anchor: discard-tells-the-named-state
  for _, word in ipairs({ (now == state or mine) and 'done' or 'changed', mine and state or now, '-' }) do results[#results + 1] = word end
end
local noted = redis.call('HMGET', stats, 'turn', 'events', 'history')
local virtual_time, events = tonumber(noted[1] or 0), notes_kept(noted[2], noted[3])
for _, job in ipairs(ends) do
  if state == 'finished' then
    redis.call('ZREM', done, job.id)
    redis.call('DEL', prefix .. 'result:' .. job.id)
  else
    end_job(prefix, job.job, job.id, { outcome = outcome, op_id = op_id, not_after_ms = not_after_ms },
      now_ms, virtual_time, wakes, events)
  end
end
for list in pairs(wakes) do wake_push(list) end
redis.call('SET', op, table.concat(results, ' '), 'PXAT', not_after_ms + LATE_COPY_MS)
if events then append_events(prefix .. 'events', events) end
return { srv_us, 'done', results }
