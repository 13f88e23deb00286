#!lua flags=allow-oom
-- Make due jobs claimable, end the pauses whose time is over, re-arm the wake marker (rule 22), and say which schedules are due: what
-- their next ticks are only the caller can tell (rule 24).
--
-- KEYS
--   sweep  hash    state of the sweeps
--   cron   zset    schedules by next tick (ms), +inf for one that does not tick
--   stats  hash    counters
--   swept  string  swept:<incarnation>, what its last sweep moved
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of our own keys
--   root      what the foreign keys begin with
--   queue     name of the queue
--   layout    layout of the format, '' = its only one
--   settings  what else the format wants to know
--   counter   counter of the incarnation's sweeps
--   limit     number: most jobs to move
--   most_ms   number: upper bound of the sleep that the reply allows
-- REPLY srv_us, sleep_ms, promoted, then the ids that it removed for want of a job; for each due schedule: name, version, next tick,
--       anchor_ms, timing, policy; version of what workers learn once (news.lua)

local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local model = wire(root, prefix, queue, layout, settings, now_ms)
check_types({ cron, prefix .. 'active', prefix .. 'rest' }, { sweep, stats, prefix .. 'settings', prefix .. 'paused' }, { prefix .. 'wake' },
  { swept })
model.check()
local version = tonumber(redis.call('HGET', prefix .. 'settings', 'version') or 0)
-- Those that stand in our own index, and those that only the wire knows of.
local function schedules()
  local due = due_schedules(prefix, now_ms, 16)
  for _, word in ipairs(model.due_schedules and model.due_schedules(16) or {}) do due[#due + 1] = word end
  return due
end
local told = swept_before(swept, counter)
if told then return { srv_us, sleep_for(prefix, now_ms, most_ms, model), told, schedules(), version } end

local promoted, words = foreign_promote(prefix, model, limit)
table.insert(words, 1, promoted)
local resumed = lift_pauses(prefix, now_ms, model)
if promoted > 0 or resumed then wake_push(prefix .. 'wake') end
if promoted > 0 or #words > 1 then redis.call('SET', swept, counter .. ' ' .. table.concat(words, ' '), 'PXAT', now_ms + 20000) end
return { srv_us, promoted == limit and 0 or sleep_for(prefix, now_ms, most_ms, model), words, schedules(), version }
