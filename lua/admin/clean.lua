#!lua flags=allow-oom
-- Remove jobs of one state that are old enough, one page per call: only jobs that were there when the first
-- call began (rule 7). The reply counts the entries that stay, so that the next page begins behind them.
--
-- HEAD core/call
-- KEYS
--   seq      string  the last sequence
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   done     zset    id by time
--   stats    hash    counters
--   op       string  op:<op id>, record of this call: its reply
-- ARGV
--   not_after_ms   number: server time after which this call is void
--   op_id          identity of the call, which its tombstones carry
--   state          waiting | blocked | delayed | active | dead | finished
--   older_than_ms  number: since they were enqueued, or since they died or finished
--   era_sequence   '' = the last one now: no job beyond it is removed
--   era_ms         '' = now: no job that finished after it is removed, nor a dead one whose sequence cannot
--                  be read
--   offset         number: entries that stay
--   limit          number: most entries to read
--   most           number: most jobs to remove
-- REPLY srv_us, done | repeated | refused, removed, kept, era_sequence, era_ms
-- USES core/call: administered, check_types, recorded_words, server_us
--      core/envelope: job_head
--      core/history: notes_kept
--      core/job: end_job, jobs_in
--      core/lane: leave_empty
--      core/lease: drop_run
--      core/wake: append_events, wake_push

check_types({ due, active, dead, done }, { sweep, stats }, {})
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known, unpack(recorded_words(op)) } end
era_sequence = tonumber(era_sequence ~= '' and era_sequence or redis.call('GET', seq) or 0)
era_ms = tonumber(era_ms ~= '' and era_ms or now_ms)
local before_ms, timed = math.min(now_ms - older_than_ms, era_ms), state == 'dead' or state == 'finished'
local all = older_than_ms == 0
local old, kept, lanes, wakes = {}, 0, {}, {}
-- anchor: clean-takes-the-named-state
for _, entry in ipairs(jobs_in(prefix, state, offset, limit, false, now_ms)) do
  if #old >= most then break end
  local job = state ~= 'finished' and job_head(prefix .. 'job:' .. entry.id)
  local readable = job and job.kind == 'J'
  -- An entry that lies ahead of now because the clock stepped back counts as old where no age is asked for
  -- (rule 10).
  -- anchor: clean-keeps-the-young
  local stays = timed and entry.score > (readable and now_ms - older_than_ms or before_ms) and not (all and entry.score > now_ms)
  -- anchor: clean-keeps-what-came-later
  if readable then stays = stays or job.sequence > era_sequence or not (timed or all) and job.enqueued_ms > before_ms end
  -- A job whose envelope is corrupt has no age. It is removed when all jobs of the state are.
  if job and job.kind == 'corrupt' then stays = stays or not (timed or all) end
  if job and job.kind ~= 'T' and state == 'dead' then
    stays = stays or redis.call('ZSCORE', active, entry.id)
  end
  if stays then
    kept = kept + 1
  else
    entry.job = job
    old[#old + 1] = entry
  end
end
local noted = redis.call('HMGET', stats, 'turn', 'events', 'history')
local virtual_time, events = tonumber(noted[1] or 0), notes_kept(noted[2], noted[3])
for _, entry in ipairs(old) do
  if entry.job then
    end_job(prefix, entry.job, entry.id, { outcome = 2, op_id = op_id, not_after_ms = not_after_ms }, now_ms,
      virtual_time, wakes, events)
  elseif state == 'finished' then
    redis.call('DEL', prefix .. 'result:' .. entry.id)
  else
    drop_run(prefix, entry.id)
  end
  redis.call('ZREM', entry.key, entry.member)
  if state == 'waiting' then lanes[string.sub(entry.key, #prefix + 6)] = true end
end
for lane in pairs(lanes) do leave_empty(prefix, lane) end
for list in pairs(wakes) do wake_push(list) end
local results = { #old, kept, string.format('%d', era_sequence), string.format('%d', era_ms) }
redis.call('SET', op, table.concat(results, ' '), 'PXAT', not_after_ms + LATE_COPY_MS)
if events then append_events(prefix .. 'events', events) end
return { srv_us, 'done', unpack(results) }
