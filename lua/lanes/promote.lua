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
--   swept    string  swept:<incarnation>, what its last sweep moved
-- ARGV
--   now_ms   '' or the time of a test
--   prefix   prefix of the queue's keys
--   counter  counter of the incarnation's sweeps
--   limit    most jobs to move
--   most_ms  upper bound of the sleep that the reply allows
-- REPLY srv_us, sleep_ms, promoted, then the ids that it could not read and buried
-- @include server_us
-- @include check_types
-- @include envelope_open
-- @include lane_score
-- @include to_lane
-- @include bury_job
-- @include promote_due
-- @include wake_push
-- @include next_ms
-- @include swept_before
local sweep = KEYS[1]
local ready = KEYS[2]
local due = KEYS[3]
local active = KEYS[4]
local dead = KEYS[5]
local stats = KEYS[6]
local wake = KEYS[7]
local swept = KEYS[8]
local now_ms = ARGV[1]
local prefix = ARGV[2]
local counter = ARGV[3]
local limit = tonumber(ARGV[4])
local most_ms = tonumber(ARGV[5])

check_types({ ready, due, active, dead }, { sweep, stats }, { wake })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local told = swept_before(swept, counter)
if told then return { srv_us, next_ms(sweep, active, due, now_ms, most_ms), told } end

local promoted, wakes, corrupt = promote_due(prefix, due, dead, stats, now_ms, limit,
  { envelope_open = envelope_open, to_lane = to_lane, lane_score = lane_score, bury_job = bury_job })
wakes[wake] = redis.call('ZCARD', ready) > 0 or nil
for list in pairs(wakes) do wake_push(list) end
table.insert(corrupt, 1, promoted)
if promoted > 0 or #corrupt > 1 then redis.call('SET', swept, counter .. ' ' .. table.concat(corrupt, ' '), 'PXAT', now_ms + 20000) end
return { srv_us, next_ms(sweep, active, due, now_ms, most_ms), corrupt }
