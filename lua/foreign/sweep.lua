#!lua flags=allow-oom
-- The housekeeping of a queue, at least once in each sweep interval (the counterpart of lua/core/sweep.lua).
-- 1. Requeue expired leases: the token is revoked, and the job returns to the front of the waiting jobs.
--    After too many crashes it becomes a dead letter (rule 12). After a stall nothing is reaped until workers
--    could renew (rule 11).
-- 2. Clamp leases that end too far ahead, because the clock stepped back, to the longest lease length
--    (rule 10).
-- 3. Requeue jobs that foreign clients took and no longer hold, if two sweeps a second apart have seen them
--    so.
-- 4. Trim ended jobs to the queue's bounds, and free limit slots that no lease holds any more (rule 20).
-- 5. Promote due jobs, and end the pauses whose time is over.
-- 6. Push a missing wake marker (rule 22).
-- 7. Return the schedules that are due, because only the caller can compute their next ticks (rule 24).
--
-- HEAD foreign/format
-- KEYS
--   active  zset    id by lease deadline (ms)
--   cron    zset    schedules by next tick (ms), +inf for one that does not tick
--   stats   hash    counters
--   leader  string  incarnation of the worker that is the leader
--   swept   string  swept:<incarnation>, counter and reply of its last sweep
-- ARGV
--   incarnation  16 hex digits
--   counter      counter of the incarnation's sweeps
--   limit        number: most jobs to move; a lease that is reaped counts as two
--   most_ms      number: upper bound of the sleep that the reply allows
--   yields       1 = another worker may take the lead: this one leaves a schedule to others
-- REPLY srv_us, sleep_ms, how many jobs were promoted, for each lease: reaped | buried | corrupt, id, fence,
--       nonce ('-' = it was a foreign client's, or the job had none), crashes; for each due schedule: name,
--       version, next tick, anchor_ms, timing, policy; version of the updates (read_worker_updates.lua), 1 =
--       the caller is the leader
-- USES <format>: wire_count, wire_due_schedules
--      core/call: check_types
--      core/limit: has_slots
--      core/sweep: share_left, sweep_clock, sweep_state, swept_before
--      core/wake: append_events, wake_push
--      foreign/claim: foreign_promote, own_words
--      foreign/ends: keep_ended, mend_held, reap_foreign
--      foreign/format: format_now
--      foreign/ids: record_of, words_of
--      foreign/looks: lift_pauses, sleep_for, strays_back
--      schedules/schedule: due_schedules

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ active, prefix .. 'strays', cron, prefix .. 'rest' },
  { sweep, stats, prefix .. 'limits', prefix .. 'retention', prefix .. 'settings', prefix .. 'paused' },
  { prefix .. 'wake' }, { swept, leader })
local version = tonumber(redis.call('HGET', prefix .. 'settings', 'version') or 0)
local leads = redis.call('GET', leader) == incarnation
local function reply(sleep_ms, words)
  local promoted = tonumber(table.remove(words, 1) or 0)
  -- Schedules in the engine's own index, and those that only the wire has.
  local due = due_schedules(prefix, now_ms, 16)
  for _, word in ipairs(wire_due_schedules(format, 16) or {}) do due[#due + 1] = word end
  return { srv_us, sleep_ms, promoted, words, due, version, leads and 1 or 0 }
end
local repeated = swept_before(redis.call('GET', swept), counter)
if repeated then
  return reply(sleep_for(prefix, now_ms, most_ms, format), words_of(table.concat(repeated, ' ')))
end

local latest = tonumber(redis.call('ZRANGE', active, -1, -1, 'WITHSCORES')[2] or 0)
local lease_ms, no_reap_before_ms, keep = sweep_clock(sweep_state(sweep), latest, now_ms, most_ms)
local latest_ms = now_ms + lease_ms
-- anchor: foreign-leases-too-far-ahead-are-cut
local ahead = redis.call('ZRANGE', active, '(' .. string.format('%d', latest_ms), '+inf', 'BYSCORE', 'LIMIT', 0, limit)
-- anchor: expired-foreign-leases-are-taken
local expired = redis.call('ZRANGE', active, '-inf', '(' .. string.format('%d', now_ms), 'BYSCORE', 'LIMIT', 0, math.ceil(limit / 2))
if now_ms < no_reap_before_ms then expired = {} end -- anchor: no-foreign-lease-is-taken-after-a-stall
-- If the hash with the lease length was lost, no lease is cut: the next claim writes the length again.
if lease_ms == 0 then ahead = {} end
local noted = redis.call('HGET', stats, 'events')
local events = noted and { keep = noted }

if leads and yields ~= '1' then keep[#keep + 1], keep[#keep + 2] = 'led_ms', now_ms end
redis.call('HSET', sweep, unpack(keep))
for _, id in ipairs(ahead) do
  -- `active` last: if the call is cut off in between, the next sweep finds the lease again.
  local name = own_words(prefix .. 'run:' .. id, 'limits')[1]
  local held = name and name ~= '' and prefix .. 'held:' .. name
  if held and has_slots(held) then redis.call('ZADD', held, 'XX', latest_ms, id) end
  redis.call('ZADD', active, latest_ms, id)
end
local taken, more, used = {}, false, 2 * #expired
local function take(...)
  for _, field in ipairs({ ... }) do taken[#taken + 1] = field end
end
for _, id in ipairs(expired) do
  local kind, fence, nonce, crashes = unpack(reap_foreign(prefix, id, now_ms, format, events))
  redis.call('ZREM', active, id)
  if kind ~= 'ended' then take(kind, id, fence, nonce, crashes) end
end
-- After a stall the foreign workers could not renew yet either.
if now_ms >= no_reap_before_ms then
  local back, moved
  back, moved, more = strays_back(prefix, active, now_ms, share_left(limit, used), format, events)
  for _, id in ipairs(back) do take('reaped', id, '0', '-', 0) end
  used = used + moved
end
more = keep_ended(prefix, now_ms, format) or more
mend_held(prefix, active, now_ms)
local most = share_left(limit, used)
local promoted, unread = foreign_promote(prefix, format, most)
for _, id in ipairs(unread) do take('corrupt', id, '0', '-', 0) end
lift_pauses(prefix, now_ms, format)
if #taken > 0 or promoted > 0 or wire_count(format, 'waiting') > 0 then
  wake_push(prefix .. 'wake')
end
table.insert(taken, 1, promoted)
if promoted > 0 or #taken > 1 then
  redis.call('SET', swept, counter .. ' ' .. record_of(taken), 'PXAT', now_ms + LATE_COPY_MS)
end
if events then append_events(prefix .. 'events', events) end
return reply((more or #ahead == limit or promoted + #unread == most) and 0
  or sleep_for(prefix, now_ms, most_ms, format), taken)
