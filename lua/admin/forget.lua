#!lua flags=allow-oom
-- Begin or end the deletion of a queue (rule 7). The first call pauses the queue for a minute, and removes
-- 1,000 schedules. It replies the greatest sequence of the jobs to delete, so later jobs stay. Another such
-- call renews the minute and removes more. The last call removes limits, pauses and retention. If there is no
-- new job by then, it removes all other keys, a part per call, and is repeated until none is left.
-- Some keys stay. `seq` and `era` tell late copies of earlier calls from later jobs. Running workers need
-- `sweep`, the version in `settings`, and their entries in `workers`. Keys that expire stay as well.
--
-- HEAD core/call
-- KEYS
--   seq       string  the last sequence
--   classes   hash    class -> name and target
--   cron      zset    schedules by next tick (ms)
--   due       zset    sequence and id by due_ms
--   active    zset    id by lease deadline (ms)
--   dead      zset    id by time
--   done      zset    id by time
--   blocked   zset    jobs that wait for parents
--   limits    hash    definitions of limits
--   paused    hash    pauses
--   retention hash    bounds of the ended jobs that are kept
--   parked    hash    lane -> the limit that it waits for
--   rest      zset    lanes and classes by the time (ms) at which their rate window or pause ends
--   blocking  zset    limits with parked lanes by the time (ms) of their last check
--   keeping   zset    jobs whose results are kept for others
--   feeding   set     jobs that others wait for
--   handing   zset    those of them that have ended, until their children are handled
--   settings  hash    settings of workers, and the version of settings and targets
--   workers   zset    incarnation by the time (ms) until which it is taken for alive
--   stats     hash    counters
--   took      zset    names that have handler times
--   op        string  op:<op id>, record of this call: its reply
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   phase         begin | end
--   force         1 = also while jobs are active
-- REPLY srv_us, done | repeated | refused | busy, era_sequence, era_ms, 1 = more keys are left: call again
-- USES core/call: administered, check_types, recorded_words, server_us
--      core/job: forget_all
--      core/lane: some_lanes

check_types({ cron, due, active, dead, done, blocked, rest, blocking, keeping, handing, workers, took },
  { sweep, classes, limits, paused, retention, parked, settings, stats }, {})
redis.call('SCARD', feeding)
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then
  local words = recorded_words(op)
  return { srv_us, words[4] or known, unpack(words, 1, 3) }
end
local results = { string.format('%d', tonumber(redis.call('GET', seq) or 0)), string.format('%d', now_ms), 0 }
if phase == 'begin' then
  if force ~= '1' and redis.call('ZCARD', active) > 0 then
    -- This refusal is recorded as well: a late copy must not begin what its caller has given up.
    redis.call('SET', op, table.concat(results, ' ') .. ' busy', 'PXAT', not_after_ms + LATE_COPY_MS)
    return { srv_us, 'busy', unpack(results) }
  end
  for _, schedule in ipairs(redis.call('ZRANGE', cron, 0, 999)) do
    redis.call('DEL', prefix .. 'cron:' .. schedule)
    redis.call('ZREM', cron, schedule)
  end
  results[3] = redis.call('EXISTS', cron)
  -- No job starts that is about to be removed, or whose limits are gone. If the last call never comes, the
  -- pause ends by itself.
  local until_ms = tonumber(string.match(redis.call('HGET', paused, '*') or '', '^%d+') or -1)
  if until_ms ~= 0 and until_ms < now_ms + 60000 then
    redis.call('HSET', paused, '*', string.format('%d 60000', now_ms + 60000))
  end
else
  local left = 0
  for _, key in ipairs({ due, active, dead, done, blocked }) do left = left + redis.call('ZCARD', key) end
  local cursor = ''
  repeat
    local lanes
    lanes, cursor = some_lanes(prefix, cursor)
    for _, lane in ipairs(left == 0 and lanes or {}) do
      left = left + redis.call('ZCARD', prefix .. 'lane:' .. lane)
    end
  until cursor == '' or left > 0
  if left == 0 then -- anchor: classes-with-jobs-are-kept
    results[3] = forget_all(prefix, now_ms) and 1 or 0
  else
    -- Lanes that wait for a limit that is gone are brought back by the sweeps (mend_limits).
    redis.call('HSET', sweep, 'limits_changed_ms', now_ms + 1, 'rests_from_ms', 0)
  end
  redis.call('DEL', paused, limits, retention)
end
redis.call('SET', op, table.concat(results, ' '), 'PXAT', not_after_ms + LATE_COPY_MS)
return { srv_us, 'done', unpack(results) }
