#!lua flags=allow-oom
-- Make due jobs claimable, end the pauses whose time is over, push a missing wake marker (rule 22), and return the schedules that
-- are due: only the caller can compute their next ticks (rule 24).
--
-- KEYS
--   sweep  hash    state of the sweeps
--   cron   zset    schedules by next tick (ms), +inf for one that does not tick
--   stats  hash    counters
--   swept  string  swept:<incarnation>, counter and reply of its last sweep
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of the engine's own keys
--   root      prefix of the foreign keys
--   queue     name of the queue
--   layout    layout of the keyspace, '' = the format has only one
--   settings  settings of the model
--   counter   counter of the incarnation's sweeps
--   limit     number: most jobs to move
--   most_ms   number: upper bound of the sleep that the reply allows
-- REPLY srv_us, sleep_ms, promoted, then the ids that it removed because they had no job; for each due schedule: name, version, next tick,
--       anchor_ms, timing, policy; version of the news (read_worker_updates.lua)

local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local model = wire(root, prefix, queue, layout, settings, now_ms)
check_types({ cron, prefix .. 'active', prefix .. 'rest' }, { sweep, stats, prefix .. 'settings', prefix .. 'paused' }, { prefix .. 'wake' },
  { swept })
model.check()
local version = tonumber(redis.call('HGET', prefix .. 'settings', 'version') or 0)
-- Schedules in the engine's own index, and those that only the wire has.
local function schedules()
  local due = due_schedules(prefix, now_ms, 16)
  for _, word in ipairs(model.due_schedules and model.due_schedules(16) or {}) do due[#due + 1] = word end
  return due
end
local repeated = swept_before(swept, counter)
if repeated then return { srv_us, sleep_for(prefix, now_ms, most_ms, model), repeated, schedules(), version } end

local promoted, words = foreign_promote(prefix, model, limit)
table.insert(words, 1, promoted)
local resumed = lift_pauses(prefix, now_ms, model)
if promoted > 0 or resumed then wake_push(prefix .. 'wake') end
if promoted > 0 or #words > 1 then redis.call('SET', swept, counter .. ' ' .. table.concat(words, ' '), 'PXAT', now_ms + 20000) end
return { srv_us, promoted == limit and 0 or sleep_for(prefix, now_ms, most_ms, model), words, schedules(), version }
