#!lua
-- Define a schedule, or change it (rule 24). What keeps its timing keeps its next tick and its anchor; what is the same in all
-- stays as it is.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   cron     zset    schedules by next tick (ms), +inf for one that does not tick
--   schedule hash    cron:<schedule>, its definition and its state
--   stats    hash    counters
--   op       string  op:<op id>, what this call met
-- ARGV
--   now_ms        '' or the time of a test
--   prefix        prefix of the queue's keys
--   not_after_ms  server time after which this call is void
--   name          name of the schedule
--   timing        when it ticks, as JSON
--   policy        what it does about missed ticks and about its own jobs, as JSON
--   job           envelope of its jobs: sequence, times and nonce are zero
--   next_ms       the next tick, for one that is new, has another timing, or did not tick until now
--   anchor_ms     where its intervals count from, for one that is new or has another timing
--   enabled       1, 0, or '' = as it is; a new one is
--   most          most schedules of the queue
-- REPLY srv_us, done | repeated | refused, new | changed | same | full
-- @include server_us
-- @include settled
-- @include check_types
-- @include administered
-- @include schedule_call
local sweep = KEYS[1]
local cron = KEYS[2]
local schedule = KEYS[3]
local stats = KEYS[4]
local op = KEYS[5]
local now_ms = ARGV[1]
local prefix = ARGV[2]
local not_after_ms = tonumber(ARGV[3])
local name = ARGV[4]
local timing = ARGV[5]
local policy = ARGV[6]
local job = ARGV[7]
local next_ms = ARGV[8]
local anchor_ms = ARGV[9]
local enabled = ARGV[10]
local most = tonumber(ARGV[11])

settled(prefix)
local srv_us, known = schedule_call({ sweep = sweep, cron = cron, schedule = schedule, op = op }, now_ms, not_after_ms,
  { check_types = check_types, server_us = server_us, administered = administered })
if known then return known end
check_types({}, { stats }, {})
local was = redis.call('HMGET', schedule, 'version', 'timing', 'policy', 'job', 'enabled', 'next_ms')
if not was[1] and redis.call('ZCARD', cron) >= most then return { srv_us, 'done', 'full' } end
if enabled == '' then enabled = was[1] and was[5] or '1' end
local retimed = was[2] ~= timing
-- One that was set aside for an error ticks again: whoever puts it could tell its next tick.
if not retimed and was[5] == '1' and was[6] ~= '0' then next_ms = was[6] end
if enabled ~= '1' then next_ms = '0' end
local changed = retimed or was[3] ~= policy or was[4] ~= job

-- The index before the hash: an entry without one is dropped by the sweeps, but a schedule that is not in the index would never tick.
-- And the later of its two times not before the hash says so: cut off in between, a sweep that comes too early sets it right, one that
-- comes too late would be too late.
local due_ms = enabled == '1' and next_ms or '+inf'
redis.call('ZADD', cron, 'LT', due_ms, name)
local fields = { 'enabled', enabled, 'next_ms', next_ms }
if changed or next_ms ~= was[6] then
  fields[#fields + 1], fields[#fields + 2] = 'error', ''
end
if retimed then
  fields[#fields + 1], fields[#fields + 2] = 'anchor_ms', anchor_ms
end
if changed then
  local version = redis.call('HINCRBY', stats, 'schedules', 1)
  for _, word in ipairs({ 'version', version, 'timing', timing, 'policy', policy, 'job', job }) do fields[#fields + 1] = word end
end
redis.call('HSET', schedule, unpack(fields))
redis.call('ZADD', cron, due_ms, name)
local found = not was[1] and 'new' or changed and 'changed' or 'same'
redis.call('SET', op, found, 'PXAT', not_after_ms + 20000)
return { srv_us, 'done', found }
