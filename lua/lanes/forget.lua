#!lua flags=allow-oom
-- Begin or end the deletion of a queue (rule 7). The first call takes its definitions away and says what is to be deleted: the jobs up to
-- a sequence and a time, and no later one. The last one ends the pauses, and forgets classes and counters, if by then nothing new has come.
--
-- KEYS
--   sweep     hash    state of the sweeps
--   seq       string  the last sequence
--   classes   hash    class -> name and target
--   cron      zset    schedules by next tick (ms)
--   due       zset    sequence and id by due_ms
--   active    zset    id by lease deadline (ms)
--   dead      zset    id by time
--   done      zset    id by time
--   limits    hash    definitions of limits
--   paused    hash    pauses
--   retention hash    bounds of what is kept of ended jobs
--   parked    hash    lane -> the limit that it waits for
--   rest      zset    lanes and classes that rest until a time (ms)
--   blocking  zset    limits with parked lanes by the time at which they were looked at
--   stats     hash    counters
--   took      zset    names with times of their handlers
--   op        string  op:<op id>, what this call has told
-- ARGV
--   now_ms        '' or the time of a test
--   prefix        prefix of the queue's keys
--   not_after_ms  server time after which this call is void
--   phase         begin | end
--   force         1 = also while jobs are in hand
-- REPLY srv_us, done | repeated | refused | busy, era_sequence, era_ms
-- @include server_us
-- @include settled
-- @include check_types
-- @include administered
-- @include told_before
-- @include lanes_of
local sweep = KEYS[1]
local seq = KEYS[2]
local classes = KEYS[3]
local cron = KEYS[4]
local due = KEYS[5]
local active = KEYS[6]
local dead = KEYS[7]
local done = KEYS[8]
local limits = KEYS[9]
local paused = KEYS[10]
local retention = KEYS[11]
local parked = KEYS[12]
local rest = KEYS[13]
local blocking = KEYS[14]
local stats = KEYS[15]
local took = KEYS[16]
local op = KEYS[17]
local now_ms = ARGV[1]
local prefix = ARGV[2]
local not_after_ms = tonumber(ARGV[3])
local phase = ARGV[4]
local force = ARGV[5]

settled(prefix)
check_types({ cron, due, active, dead, done, rest, blocking, took }, { sweep, classes, limits, paused, retention, parked, stats }, {})
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known, unpack(told_before(op)) } end
local told = { string.format('%d', tonumber(redis.call('GET', seq) or 0)), string.format('%d', now_ms) }
if phase == 'begin' then
  if force ~= '1' and redis.call('ZCARD', active) > 0 then return { srv_us, 'busy', unpack(told) } end
  -- Lanes that wait for a limit that is gone are brought back by the sweeps (mend_limits), should a new job use them.
  redis.call('HSET', sweep, 'limits_changed_ms', now_ms + 1, 'rests_from_ms', 0)
  for _, schedule in ipairs(redis.call('ZRANGE', cron, 0, -1)) do redis.call('DEL', prefix .. 'cron:' .. schedule) end
  -- The pauses stay until the end, or what has been paused would run before it is removed.
  redis.call('DEL', cron, limits, retention)
else
  redis.call('DEL', paused)
  local left = 0
  for _, key in ipairs({ due, active, dead, done, prefix .. 'blocked' }) do left = left + redis.call('ZCARD', key) end
  for _, lane in ipairs(lanes_of(prefix)) do left = left + redis.call('ZCARD', prefix .. 'lane:' .. lane) end
  if left == 0 then
    for _, class in ipairs(redis.call('HKEYS', classes)) do redis.call('DEL', prefix .. 'ready:' .. class, prefix .. 'wake:' .. class) end
    for _, name in ipairs(redis.call('ZRANGE', took, 0, -1)) do redis.call('DEL', prefix .. 'took:' .. name) end
    redis.call('DEL', took, classes, prefix .. 'routed', parked, rest, blocking, stats, prefix .. 'events')
  end
end
redis.call('SET', op, table.concat(told, ' '), 'PXAT', not_after_ms + 20000)
return { srv_us, 'done', unpack(told) }
