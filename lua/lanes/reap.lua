#!lua flags=allow-oom
-- Take expired leases away: the token dies here, the job returns to its place in the lane, and a crash is counted.
-- Also bounds `done` by count and re-arms the wake marker of the class.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   ready    zset    ready lanes of the class
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   done     zset    id by time
--   dead     zset    id by time
--   stats    hash    counters
--   wake     list    at most one marker
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of the queue's keys
--   limit     most leases to take away
--   most_ms   upper bound of the sleep that the reply allows
--   done_max  entries of `done` that stay
-- REPLY srv_us, sleep_ms, for each reaped lease: id, fence, nonce, crashes
-- @include server_us
-- @include check_types
-- @include envelope_open
-- @include due_member
-- @include lane_score
-- @include to_lane
-- @include bury_job
-- @include wake_push
-- @include next_ms
local sweep = KEYS[1]
local ready = KEYS[2]
local due = KEYS[3]
local active = KEYS[4]
local done = KEYS[5]
local dead = KEYS[6]
local stats = KEYS[7]
local wake = KEYS[8]
local now_ms = ARGV[1]
local prefix = ARGV[2]
local limit = tonumber(ARGV[3])
local most_ms = tonumber(ARGV[4])
local done_max = tonumber(ARGV[5])

check_types({ ready, due, active, done, dead }, { sweep, stats }, { wake })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local reaped, wakes = {}, {}
for _, id in ipairs(redis.call('ZRANGE', active, '-inf', '(' .. string.format('%d', now_ms), 'BYSCORE', 'LIMIT', 0, limit)) do
  local run = prefix .. 'run:' .. id
  local job = envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. id, 0, 700))
  local state = redis.call('HMGET', run, 'fence', 'nonce', 'crashes')
  local live = state[2] and state[2] ~= ''
  if not job or job.kind == 'T' then
    -- A finish that was cut off after its tombstone: the job has ended, only its lease is left.
    redis.call('DEL', run)
  elseif job.kind == 'corrupt' then
    bury_job(dead, stats, id, now_ms)
    redis.call('HSET', run, 'nonce', '', 'error', 'corrupt envelope')
  else
    -- A bury or a retry that was cut off has already put the job among the dead or the due ones: it stays there.
    if not (redis.call('ZSCORE', dead, id) or redis.call('ZSCORE', due, due_member(job.sequence, id))) then
      wakes[to_lane(prefix, id, job, lane_score)] = true
    end
    if live then
      local crashes = tonumber(state[3] or 0) + 1
      redis.call('HSET', run, 'nonce', '', 'crashes', crashes)
      for _, field in ipairs({ id, tonumber(state[1]), state[2], crashes }) do reaped[#reaped + 1] = field end
    end
  end
  redis.call('ZREM', active, id)
end
redis.call('ZREMRANGEBYRANK', done, 0, -(done_max + 1))
wakes[wake] = redis.call('ZCARD', ready) > 0 or nil
for list in pairs(wakes) do wake_push(list) end
return { srv_us, next_ms(active, due, now_ms, most_ms), reaped }
