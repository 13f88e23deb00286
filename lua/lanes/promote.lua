#!lua flags=allow-oom
-- Move due jobs into their lanes, and re-arm the wake marker of the class while work is claimable (rule 22).
--
-- KEYS
--   sweep    hash    state of the sweeps
--   ready    zset    ready lanes of the class
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   stats    hash    counters
--   wake     list    at most one marker
-- ARGV
--   now_ms   '' or the time of a test
--   prefix   prefix of the queue's keys
--   limit    most jobs to move
--   most_ms  upper bound of the sleep that the reply allows
-- REPLY srv_us, promoted, sleep_ms
-- @include server_us
-- @include check_types
-- @include envelope_open
-- @include lane_score
-- @include to_lane
-- @include bury_job
-- @include promote_due
-- @include wake_push
-- @include next_ms
local sweep = KEYS[1]
local ready = KEYS[2]
local due = KEYS[3]
local active = KEYS[4]
local dead = KEYS[5]
local stats = KEYS[6]
local wake = KEYS[7]
local now_ms = ARGV[1]
local prefix = ARGV[2]
local limit = tonumber(ARGV[3])
local most_ms = tonumber(ARGV[4])

check_types({ ready, due, active, dead }, { sweep, stats }, { wake })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local promoted, wakes = promote_due(prefix, due, dead, stats, now_ms, limit,
  { envelope_open = envelope_open, to_lane = to_lane, lane_score = lane_score, bury_job = bury_job })
wakes[wake] = redis.call('ZCARD', ready) > 0 or nil
for list in pairs(wakes) do wake_push(list) end
return { srv_us, promoted, next_ms(active, due, now_ms, most_ms) }
