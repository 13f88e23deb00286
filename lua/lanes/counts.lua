#!lua flags=no-writes
-- Jobs in each state, and how many have ever finished and been buried.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   lane     zset    id by priority band and sequence
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   done     zset    id by time
--   stats    hash    counters
-- ARGV
--   now_ms   '' or the time of a test
-- REPLY srv_us, waiting, delayed, active, dead, done, finished, buried
-- @include server_us
local sweep = KEYS[1]
local lane = KEYS[2]
local due = KEYS[3]
local active = KEYS[4]
local dead = KEYS[5]
local done = KEYS[6]
local stats = KEYS[7]
local now_ms = ARGV[1]

local reply = { server_us(now_ms, sweep) }
for _, key in ipairs({ lane, due, active, dead, done }) do reply[#reply + 1] = redis.call('ZCARD', key) end
local totals = redis.call('HMGET', stats, 'finished', 'buried')
reply[#reply + 1] = tonumber(totals[1] or 0)
reply[#reply + 1] = tonumber(totals[2] or 0)
return reply
