#!lua
-- Put many jobs of one lane into it, or into `due` those that are delayed, in one piece and in the order of the items (rule 3).
-- Repeating it changes nothing.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   seq      string  the last sequence
--   classes  hash    class -> name and target
--   ready    zset    ready lanes of the class
--   lane     zset    id by priority band and sequence
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   wake     list    at most one marker
--   items    2 for each item: job:<id>, run:<id>
-- ARGV
--   now_ms        '' or the time of a test
--   class         class of the jobs
--   lane_name     lane of the jobs
--   nonce         enqueue nonce of the call
--   not_after_ms  server time after which this call is void
--   items         3 for each item: id, delay_ms (0 = claimable at once), envelope without the fields that the server sets
-- REPLY srv_us, a letter for each item (c created, r repeated, d duplicate, x refused), then state and fence of each duplicate
-- @include server_us
-- @include check_types
-- @include envelope_open
-- @include lane_score
-- @include due_member
-- @include enqueue_known
-- @include wake_push
local sweep = KEYS[1]
local seq = KEYS[2]
local classes = KEYS[3]
local ready = KEYS[4]
local lane = KEYS[5]
local due = KEYS[6]
local active = KEYS[7]
local dead = KEYS[8]
local wake = KEYS[9]
local now_ms = ARGV[1]
local class = ARGV[2]
local lane_name = ARGV[3]
local nonce = ARGV[4]
local not_after_ms = tonumber(ARGV[5])

-- Read everything. Most often no id is known, and a page of 500 then costs one EXISTS.
check_types({ ready, lane, due, active, dead }, { sweep, classes }, { wake })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local sequence = tonumber(redis.call('GET', seq) or 0)
local count, letters, known_states, fresh = (#KEYS - 9) / 2, {}, {}, {}
for page = 1, count, 500 do
  local last, job_keys = math.min(page + 499, count), {}
  for at = page, last do job_keys[#job_keys + 1] = KEYS[8 + 2 * at] end
  local some_known = redis.call('EXISTS', unpack(job_keys)) > 0
  for at = page, last do
    local id, result, state, fence = ARGV[3 + 3 * at], nil, nil, nil
    if some_known then
      local keys = { run = KEYS[9 + 2 * at], active = active, dead = dead, due = due }
      result, state, fence = enqueue_known(envelope_open(redis.call('GET', KEYS[8 + 2 * at])), nonce, id, keys, due_member)
    end
    if result == 'duplicate' then
      known_states[#known_states + 1] = state
      known_states[#known_states + 1] = fence
    elseif not result and now_ms <= not_after_ms then
      fresh[#fresh + 1] = at
    end
    letters[at] = result == 'duplicate' and 'd' or result == 'repeated' and 'r' or now_ms <= not_after_ms and 'c' or 'x'
  end
end
-- 2^48: beyond it a FIFO score would leave its band (rule 16).
if sequence + #fresh > 281474976710655 then return redis.error_reply('IRONCLAIM sequence exhausted at 2^48') end
local reply = { srv_us, table.concat(letters), known_states }
if #fresh == 0 then return reply end

local waiting, delayed, jobs, first = {}, {}, {}, nil
for _, at in ipairs(fresh) do
  sequence = sequence + 1
  local id, delay_ms, sealed = ARGV[3 + 3 * at], tonumber(ARGV[4 + 3 * at]), ARGV[5 + 3 * at]
  local due_ms = delay_ms > 0 and now_ms + delay_ms or 0
  jobs[#jobs + 1] = KEYS[8 + 2 * at]
  jobs[#jobs + 1] = string.sub(sealed, 1, 4) .. struct.pack('>I8I8I8', sequence, now_ms, due_ms) .. string.sub(sealed, 5)
  local index = due_ms > 0 and delayed or waiting
  index[#index + 1] = due_ms > 0 and due_ms or lane_score(string.byte(sealed, 3), string.byte(sealed, 4), sequence)
  index[#index + 1] = due_ms > 0 and due_member(sequence, id) or id
  -- The earliest of ours; the first of equals has the lower sequence.
  if due_ms > 0 and (not first or due_ms < first.due_ms) then first = { due_ms = due_ms, member = index[#index] } end
end

redis.call('INCRBY', seq, #fresh)
if redis.call('HEXISTS', classes, class) == 0 then redis.call('HSET', classes, class, '') end
if #waiting > 0 then redis.call('ZADD', ready, 'NX', 0, lane_name) end
-- The index before the jobs: an entry without a job is skipped, a job without an entry would be lost (rule 1).
for at = 1, #delayed, 1000 do redis.call('ZADD', due, unpack(delayed, at, math.min(at + 999, #delayed))) end
for at = 1, #waiting, 1000 do redis.call('ZADD', lane, unpack(waiting, at, math.min(at + 999, #waiting))) end
for at = 1, #jobs, 1000 do redis.call('MSET', unpack(jobs, at, math.min(at + 999, #jobs))) end
if #waiting > 0 or redis.call('ZRANGE', due, 0, 0)[1] == first.member then wake_push(wake) end
return reply
