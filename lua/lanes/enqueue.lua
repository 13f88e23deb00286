#!lua
-- Put one job into its lane, or into `due` when it is delayed (rule 3). Repeating it changes nothing.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   seq      string  the last sequence
--   job      string  job:<id>, the envelope or its tombstone
--   run      hash    run:<id>
--   classes  hash    class -> name and target
--   ready    zset    ready lanes of the class
--   lane     zset    id by priority band and sequence
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   wake     list    at most one marker
-- ARGV
--   now_ms        '' or the time of a test
--   id            job id
--   class         class of the job
--   lane_name     lane of the job
--   delay_ms      0 = claimable at once
--   not_after_ms  server time after which this call is void
--   head          envelope before the three fields that the server sets: version, kind, priority, flags
--   tail          envelope after them, from the enqueue nonce on
-- REPLY srv_us, created | repeated | duplicate | refused, state, fence
-- @include server_us
-- @include check_types
-- @include envelope_open
-- @include lane_score
-- @include due_member
-- @include enqueue_known
-- @include wake_push
local sweep = KEYS[1]
local seq = KEYS[2]
local job = KEYS[3]
local run = KEYS[4]
local classes = KEYS[5]
local ready = KEYS[6]
local lane = KEYS[7]
local due = KEYS[8]
local active = KEYS[9]
local dead = KEYS[10]
local wake = KEYS[11]
local now_ms = ARGV[1]
local id = ARGV[2]
local class = ARGV[3]
local lane_name = ARGV[4]
local delay_ms = tonumber(ARGV[5])
local not_after_ms = tonumber(ARGV[6])
local head = ARGV[7]
local tail = ARGV[8]

check_types({ ready, lane, due, active, dead }, { sweep, run, classes }, { wake })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = envelope_open(redis.call('GET', job))
local keys = { run = run, active = active, dead = dead, due = due }
local result, state, fence = enqueue_known(known, string.sub(tail, 1, 8), id, keys, due_member)
if result then return { srv_us, result, state, fence } end
if now_ms > not_after_ms then return { srv_us, 'refused', '', 0 } end
-- 2^48: beyond it a FIFO score would leave its band (rule 16).
if tonumber(redis.call('GET', seq) or 0) >= 281474976710655 then return redis.error_reply('IRONCLAIM sequence exhausted at 2^48') end

local sequence = redis.call('INCR', seq)
local priority, flags = string.byte(head, 3, 4)
local due_ms = delay_ms > 0 and now_ms + delay_ms or 0
local envelope = head .. struct.pack('>I8I8I8', sequence, now_ms, due_ms) .. tail
if redis.call('HEXISTS', classes, class) == 0 then redis.call('HSET', classes, class, '') end
-- The index before the job: an entry without a job is skipped, a job without an entry would be lost (rule 1).
if due_ms > 0 then
  local member = due_member(sequence, id)
  redis.call('ZADD', due, due_ms, member)
  redis.call('SET', job, envelope)
  if redis.call('ZRANGE', due, 0, 0)[1] == member then wake_push(wake) end
else
  redis.call('ZADD', ready, 'NX', 0, lane_name)
  redis.call('ZADD', lane, lane_score(priority, flags, sequence), id)
  redis.call('SET', job, envelope)
  wake_push(wake)
end
return { srv_us, 'created', '', 0 }
