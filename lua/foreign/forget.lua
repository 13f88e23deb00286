#!lua flags=allow-oom
-- Begin or end the deletion of a queue (rule 7). The first call pauses this engine's workers for a minute and
-- removes the schedules; another such call renews the minute. The last call removes the foreign keys that are
-- left, a part per call. It is repeated until none is left, and then removes the engine's own keys. What
-- stays: `sweep`, the version in `worker_settings` and the live ones of `workers`, which running workers rely
-- on, and keys that expire.
--
-- HEAD foreign/format
-- KEYS
--   cron             zset    schedules by next tick (ms)
--   active           zset    id by lease deadline (ms)
--   paused           hash    pauses
--   worker_settings  hash    settings of workers, and their version
--   workers          zset    incarnation by the time (ms) until which it is taken for alive
--   took             zset    names that have handler times
--   op               string  op:<op id>, record of this call: its reply
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   phase         begin | end
--   force         1 = also while jobs are active
-- REPLY srv_us, done | repeated | refused | busy, era_sequence (0), era_ms, 1 = more keys are left: call
--       again
-- USES <format>: wire_count, wire_obliterated, wire_purge
--      core/call: administered, check_types, recorded_words
--      foreign/format: format_now

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ cron, active, workers, took }, { paused, worker_settings }, {}, { op })

local known = administered(op, not_after_ms, now_ms)
if known then
  local words = recorded_words(op)
  return { srv_us, words[4] or known, unpack(words, 1, 3) }
end
local results = { '0', string.format('%d', now_ms), 0 }
if phase == 'begin' then
  if force ~= '1' and wire_count(format, 'active') > 0 then
    redis.call('SET', op, table.concat(results, ' ') .. ' busy', 'PXAT', not_after_ms + LATE_COPY_MS)
    return { srv_us, 'busy', unpack(results) }
  end
  for _, schedule in ipairs(redis.call('ZRANGE', cron, 0, -1)) do
    redis.call('DEL', prefix .. 'cron:' .. schedule)
  end
  redis.call('DEL', cron)
  -- Only the engine's own pause: if the last call never comes, no foreign client stays paused.
  local until_ms = tonumber(string.match(redis.call('HGET', paused, '*') or '', '^%d+') or -1)
  if until_ms ~= 0 and until_ms < now_ms + 60000 then
    redis.call('HSET', paused, '*', string.format('%d 60000', now_ms + 60000))
  end
else
  local left = 0
  for _, state in ipairs({ 'waiting', 'delayed', 'active', 'dead', 'done' }) do
    left = left + wire_count(format, state)
  end
  if left == 0 then
    if wire_purge(format, 1000) then
      results[3] = 1
    else
      wire_obliterated(format)
      for _, name in ipairs(redis.call('ZRANGE', took, 0, -1)) do
        redis.call('DEL', prefix .. 'took:' .. name)
      end
      for _, name in ipairs({ 'took', 'stats', 'events', 'rest', 'scan', 'aside', 'strays', 'witness',
          'wake' }) do
        redis.call('UNLINK', prefix .. name)
      end
      for _, field in ipairs(redis.call('HKEYS', worker_settings)) do
        if field ~= 'version' then redis.call('HDEL', worker_settings, field) end
      end
      redis.call('ZREMRANGEBYSCORE', workers, '-inf', '(' .. string.format('%d', now_ms))
    end
  end
  redis.call('DEL', paused, prefix .. 'limits', prefix .. 'retention')
end
redis.call('SET', op, table.concat(results, ' '), 'PXAT', not_after_ms + LATE_COPY_MS)
return { srv_us, 'done', unpack(results) }
