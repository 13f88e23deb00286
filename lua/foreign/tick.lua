#!lua
-- Make the jobs of a schedule's ticks and move it on to its next tick. The schedule must still have this
-- version and wait for this tick, or another scheduler was faster (rule 24). With an error it stops ticking.
--
-- HEAD foreign/format
-- KEYS
--   cron      zset    schedules by next tick (ms), +inf for one that does not tick
--   schedule  hash    cron:<schedule>, its definition and its state
--   stats     hash    counters
--   items     1 for each item: new:cron:<schedule>:<tick>, the id of the job that the tick has made
-- ARGV
--   name         name of the schedule
--   version      version of its definition
--   expected_ms  the tick that it waits for
--   next_ms      the next tick, 0 with an error
--   missed       number: ticks that are skipped
--   overlap      allow | skip
--   caller       identity of this call
--   error_text   '' = none
--   items        2 for each item: its tick (ms), and the id of its job ('' = the server gives it one)
-- REPLY srv_us, ticked | repeated | moved, jobs not made because the one before has not ended, then the ids
--       of those that were
-- USES <format>: wire_add, wire_admit, wire_ended, wire_may_tick, wire_new_id, wire_place, wire_read,
--        wire_scheduled, wire_settle_schedule, wire_ticked
--      core/call: check_types
--      core/wake: append_events, wake_push
--      foreign/format: format_now, unpack_fields
--      foreign/ids: record_of, words_of
--      foreign/looks: place_of
--      schedules/schedule: note_tick, tick_state, ticked_until

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ cron }, { schedule, stats }, { prefix .. 'wake' }, { unpack(KEYS, 5) })
-- A foreign client may have moved or removed it.
wire_settle_schedule(format, name)
local was = tick_state(schedule)
local words = words_of(was.ticked)
if words[1] == caller then return { srv_us, 'repeated', tonumber(words[2]), { unpack(words, 3) } } end
local last_ms = #ARGV > 14 and tonumber(ARGV[#ARGV - 1]) or 0
if was.version ~= version or was.next_ms ~= expected_ms or was.enabled ~= '1'
    or math.max(last_ms, tonumber(expected_ms)) > now_ms then
  return { srv_us, 'moved', 0, {} }
end
local function template()
  return unpack_fields(unpack_fields(was.job)[2])
end
local whole, parts = pcall(template)
if error_text == '' and not (whole and parts[1]) then error_text, next_ms = 'corrupt template', '0' end
if error_text == '' and tonumber(next_ms) <= math.max(tonumber(expected_ms), last_ms) then
  return redis.error_reply('IRONCLAIM the next tick of a schedule must come after the one before')
end
local keep = redis.call('HGET', stats, 'events')
local events = keep and { keep = keep }
local function item(id)
  return { id = id, wait_ms = 0, body = parts[1], fields = parts }
end
local function goes_on(id)
  local state = place_of(prefix .. 'run:' .. id, id, format)
  return state == 'waiting' or state == 'delayed' or state == 'active'
end
local made, skipped, last_job, last_tick = {}, 0, was.last_job or '', nil
if error_text == '' then
  local free = overlap == 'allow' or last_job == '' or not goes_on(last_job)
  local done_ms = ticked_until(was.last_ms, now_ms)
  local first = 5
  while first <= #KEYS and tonumber(ARGV[2 * first + 5]) <= done_ms do first = first + 1 end
  for at = first, #KEYS do
    local tick_ms, id = ARGV[2 * at + 5], ARGV[2 * at + 6]
    local known = redis.call('GET', KEYS[at])
    -- In some formats a foreign scheduler may have run this tick, or be about to.
    local left = wire_may_tick(format, name, tonumber(tick_ms)) ~= false
    if known or (free and left and not wire_admit(format, item(id))) then
      -- A known job was made by a copy that was cut off, or was about to be.
      made[#made + 1] = { id = known or id, key = KEYS[at], tick_ms = tick_ms, known = known }
      free = overlap == 'allow'
    else
      skipped = skipped + 1
    end
  end
end

local ids = {}
for _, job in ipairs(made) do
  if not job.known then
    job.id = wire_new_id(format, job.id) or job.id
    redis.call('SET', job.key, job.id, 'PXAT', string.format('%d', now_ms + 600000))
  end
  if not job.known or not wire_place(format, job.id) and not wire_ended(format, job.id) then
    wire_add(format, item(job.id), 0)
    if events then
      events[#events + 1] = { 'created', job.id, (wire_read(format, job.id) or {}).name, 'waiting' }
    end
  end
  ids[#ids + 1], last_job, last_tick = job.id, job.id, job.tick_ms
end
note_tick(cron, schedule, name, was, { next_ms = next_ms, made = #made, missed = missed, skipped = skipped,
  error = error_text, ticked = record_of({ caller, skipped, unpack(ids) }), last_job = last_job,
  last_ms = last_tick })
if error_text == '' then
  for _, job in ipairs(made) do
    wire_ticked(format, name, tonumber(job.tick_ms), tonumber(next_ms), job.id)
  end
end
wire_scheduled(format, name, tonumber(next_ms), was.job)
if #made > 0 then wake_push(prefix .. 'wake') end
if events then append_events(prefix .. 'events', events) end
return { srv_us, 'ticked', skipped, ids }
