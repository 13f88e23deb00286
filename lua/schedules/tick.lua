#!lua
-- Make the jobs of a schedule's ticks and move it on to its next tick. The schedule must still have this
-- version and wait for this tick, or another scheduler was faster (rule 24). With an error it stops ticking.
--
-- HEAD core/call
-- KEYS
--   cron     zset    schedules by next tick (ms), +inf for one that does not tick
--   schedule hash    cron:<schedule>, its definition and its state
--   seq      string  the last sequence
--   classes  hash    class -> name and target
--   parked   hash    lane -> the limit that it waits for
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   stats    hash    counters
--   items    1 for each item: job:cron:<schedule>:<tick>
-- ARGV
--   name         name of the schedule
--   version      version of its definition
--   expected_ms  the tick that it waits for
--   next_ms      the next tick, 0 with an error
--   missed       number: ticks that are skipped
--   overlap      allow | skip
--   caller       identity of this call
--   error_text   '' = none
--   items        1 for each item: its tick (ms)
-- REPLY srv_us, ticked | repeated | moved, jobs not made because the one before has not ended, then the ids
--       of those that were
-- USES core/call: check_types, server_us
--      core/envelope: envelope_open, job_head
--      core/job: job_state, make_job, unique_holder
--      core/wake: append_events, wake_push
--      schedules/schedule: note_tick, tick_state, ticked_until

check_types({ cron, due, active, dead }, { sweep, schedule, classes, parked, stats }, {},
  { seq, unpack(KEYS, 11) })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local was = tick_state(schedule)
local words = {}
for word in string.gmatch(was.ticked or '', '%S+') do words[#words + 1] = word end
if words[1] == caller then return { srv_us, 'repeated', tonumber(words[2]), { unpack(words, 3) } } end
local last_ms = #ARGV > 10 and tonumber(ARGV[#ARGV]) or 0
local due_ms = math.max(last_ms, tonumber(expected_ms))
-- anchor: tick-checks-version-and-time
if was.version ~= version or was.next_ms ~= expected_ms or was.enabled ~= '1' or due_ms > now_ms then
  return { srv_us, 'moved', 0, {} }
end
local job = envelope_open(was.job)
if error_text == '' and (not job or job.kind ~= 'J') then error_text, next_ms = 'corrupt envelope', '0' end
if error_text == '' and tonumber(next_ms) <= due_ms then
  return redis.error_reply('IRONCLAIM the next tick of a schedule must come after the one before')
end
-- 2^48: beyond it a FIFO score would leave its band (rule 16).
if tonumber(redis.call('GET', seq) or 0) >= 281474976710000 then
  return redis.error_reply('IRONCLAIM sequence exhausted at 2^48')
end
local noted = redis.call('HMGET', stats, 'turn', 'events')
local virtual_time, events = tonumber(noted[1] or 0), noted[2] and { keep = noted[2] }
local fresh, made, skipped, last_job = {}, {}, 0, was.last_job or ''
local function ended(id)
  local state = job_state(prefix, job_head(prefix .. 'job:' .. id), id)
  return state ~= 'waiting' and state ~= 'delayed' and state ~= 'active'
end
if error_text == '' then
  check_types({ prefix .. 'lane:' .. job.lane, prefix .. 'ready:' .. job.class },
    { prefix .. 'routed', prefix .. 'settings' }, { prefix .. 'wake:' .. job.class })
  -- anchor: schedule-waits-for-its-last-job
  local free = overlap == 'allow' or last_job == '' or ended(last_job)
  local done_ms = ticked_until(was.last_ms, now_ms)
  local first = 11
  while first <= #ARGV and tonumber(ARGV[first]) <= done_ms do first = first + 1 end
  for at = first, #ARGV do
    local key = KEYS[at]
    local id = string.sub(key, #prefix + 5)
    local known = redis.call('EXISTS', key) == 1
    local taken = job.unique and (#fresh > 0 or unique_holder(prefix, job.unique, '', id))
    if known or (free and not taken) then
      -- A known job was made by a copy that was cut off.
      if not known then fresh[#fresh + 1] = id end
      made[#made + 1] = id
      last_job, free = id, overlap == 'allow' -- anchor: ticks-at-once-make-one-job
    else
      skipped = skipped + 1
    end
  end
end

local wakes = {}
for _, id in ipairs(fresh) do make_job(prefix, id, was.job, job, now_ms, virtual_time, wakes, events) end
note_tick(cron, schedule, name, was, { next_ms = next_ms, made = #made, missed = missed, skipped = skipped,
  error = error_text, ticked = caller .. ' ' .. skipped .. ' ' .. table.concat(made, ' '),
  last_job = last_job, last_ms = string.match(last_job, '%d+$') })
for list in pairs(wakes) do wake_push(list) end
if events then append_events(prefix .. 'events', events) end
return { srv_us, 'ticked', skipped, made }
