#!lua flags=allow-oom
-- Begin or end the deletion of a queue (rule 7). The first call lets nothing of ours start for a minute and takes the schedules away;
-- another one makes it a minute again. The last one takes the foreign keys that are left, a piece a call, and then our own. What stays:
-- `sweep`, the version in `worker_settings` and the live ones of `workers`, which workers know, and what expires by itself.
--
-- KEYS
--   sweep            hash    state of the sweeps
--   cron             zset    schedules by next tick (ms)
--   active           zset    id by lease deadline (ms)
--   paused           hash    pauses
--   worker_settings  hash    version of what workers learn once
--   workers          zset    incarnation by the time (ms) until which it is taken for alive
--   took             zset    names with times of their handlers
--   op               string  op:<op id>, what this call has told
-- ARGV
--   now_ms        '' or the time of a test
--   prefix        prefix of our own keys
--   root          what the foreign keys begin with
--   queue         name of the queue
--   layout        layout of the format, '' = its only one
--   settings      what else the format wants to know
--   not_after_ms  number: server time after which this call is void
--   phase         begin | end
--   force         1 = also while jobs are in hand
-- REPLY srv_us, done | repeated | refused | busy, era_sequence (0), era_ms, 1 = there is more to take: another call ends it

local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local model = wire(root, prefix, queue, layout, settings, now_ms)
check_types({ cron, active, workers, took }, { paused, worker_settings }, {}, { op })
model.check()

local known = administered(op, not_after_ms, now_ms)
if known then
  local words = told_before(op)
  return { srv_us, words[4] or known, unpack(words, 1, 3) }
end
local told = { '0', string.format('%d', now_ms), 0 }
if phase == 'begin' then
  if force ~= '1' and model.count('active') > 0 then
    redis.call('SET', op, table.concat(told, ' ') .. ' busy', 'PXAT', not_after_ms + 20000)
    return { srv_us, 'busy', unpack(told) }
  end
  for _, schedule in ipairs(redis.call('ZRANGE', cron, 0, -1)) do redis.call('DEL', prefix .. 'cron:' .. schedule) end
  redis.call('DEL', cron)
  -- Ours alone: should the end never come, no foreign client stays paused.
  local until_ms = tonumber(string.match(redis.call('HGET', paused, '*') or '', '^%d+') or -1)
  if until_ms ~= 0 and until_ms < now_ms + 60000 then redis.call('HSET', paused, '*', string.format('%d 60000', now_ms + 60000)) end
else
  local left = 0
  for _, state in ipairs({ 'waiting', 'delayed', 'active', 'dead', 'done' }) do left = left + model.count(state) end
  if left == 0 then
    if model.purge(1000) then
      told[3] = 1
    else
      if model.obliterated then model.obliterated() end
      for _, name in ipairs(redis.call('ZRANGE', took, 0, -1)) do redis.call('DEL', prefix .. 'took:' .. name) end
      for _, name in ipairs({ 'took', 'stats', 'events', 'rest', 'scan', 'aside', 'strays', 'witness', 'wake' }) do redis.call('UNLINK', prefix .. name) end
      for _, field in ipairs(redis.call('HKEYS', worker_settings)) do
        if field ~= 'version' then redis.call('HDEL', worker_settings, field) end
      end
      redis.call('ZREMRANGEBYSCORE', workers, '-inf', '(' .. string.format('%d', now_ms))
    end
  end
  redis.call('DEL', paused, prefix .. 'limits', prefix .. 'retention')
end
redis.call('SET', op, table.concat(told, ' '), 'PXAT', not_after_ms + 20000)
return { srv_us, 'done', unpack(told) }
