#!lua flags=no-writes
-- One page of every state at one instant: ids with their scores, for snapshots and for people.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   lane     zset    id by priority band and sequence
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   done     zset    id by time
-- ARGV
--   now_ms   '' or the time of a test
--   offset   first rank
--   limit    most entries for each state
-- REPLY srv_us, then for each of lane, due, active, dead, done: member, score, ...
-- @include server_us
local sweep = KEYS[1]
local lane = KEYS[2]
local due = KEYS[3]
local active = KEYS[4]
local dead = KEYS[5]
local done = KEYS[6]
local now_ms = ARGV[1]
local offset = tonumber(ARGV[2])
local limit = tonumber(ARGV[3])

local reply = { server_us(now_ms, sweep) }
for _, key in ipairs({ lane, due, active, dead, done }) do
  reply[#reply + 1] = redis.call('ZRANGE', key, offset, offset + limit - 1, 'WITHSCORES')
end
return reply
