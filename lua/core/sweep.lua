#!lua flags=allow-oom -- anchor: sweeps-run-when-memory-is-full
-- The housekeeping of a queue, at least once in each sweep interval, by its leader if it has one:
-- 1. Requeue expired leases: the token is revoked, and the job returns to its place in the lane. After too
--    many crashes it becomes a dead letter (rule 12). After a stall of the server nothing is reaped until
--    workers could renew (rule 11).
-- 2. Clamp leases that end too far ahead, because the clock stepped back, to the longest lease length
--    (rule 10).
-- 3. Trim `done`, `dead` and the history to their bounds, drop entries without a job, and repair the counts
--    of limits (rule 20).
-- 4. Expire jobs that no worker has started in time (rule 38).
-- 5. Promote due jobs into their lanes, and bring back lanes whose rest is over.
-- 6. Pass the ends of parents on to their children, and let results expire that no child needs any more
--    (rule 25).
-- 7. Push the missing wake markers (rule 22).
-- 8. Return the schedules that are due, because only the caller can compute their next ticks (rule 24).
-- Followers watch for the leader's sweeps (rule 13). Once a second the reply also names control connections
-- that the caller checks (rule 39).
--
-- HEAD core/call
-- KEYS
--   due      zset    sequence and id by due_ms
--   rest     zset    lanes and classes by the time (ms) at which their rate window or pause ends
--   cron     zset    schedules by next tick (ms), +inf for one that does not tick
--   parked   hash    lane -> the limit that it waits for
--   blocking zset    limits with parked lanes by the time (ms) of their last check
--   limits   hash    definitions of limits
--   paused   hash    pauses
--   active   zset    id by lease deadline (ms)
--   done     zset    id by time
--   dead     zset    id by time
--   stats    hash    counters
--   settings hash    settings of workers, and the version of settings and targets
--   expiring zset    sequence and id by the time (ms) at which the job expires unless somebody has started it
--   keeping  zset    jobs whose results are kept for others, by the time (ms) of their last check
--   retention hash   bounds of the ended jobs that are kept
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   connections hash incarnation -> its control connection: client id and run id of the server
--   leader   string  incarnation of the worker that is the leader
--   swept    string  swept:<incarnation>, counter and reply of its last sweep
-- ARGV
--   incarnation  16 hex digits
--   counter      counter of the incarnation's sweeps
--   limit        number: most jobs to move; a lease that is reaped counts as two
--   most_ms      number: upper bound of the sleep that the reply allows
--   done_max     number: entries of `done` that stay, unless the queue has its own bound
--   yields       1 = another worker may take the lead: this one leaves a schedule to others
--   run_id       run id of the server, by the caller's own control connection; '' = it cannot look at those
--                of others
-- REPLY srv_us, sleep_ms, how many jobs were promoted, for each lease: reaped | buried | corrupt, id, fence,
--       nonce ('-' for a job that had none), crashes; for each due schedule: name, version, next tick,
--       anchor_ms, timing, policy; version of the updates (read_worker_updates.lua), 1 = the caller is the
--       leader; where it is to look at the control connections, for each: incarnation, client id
-- USES children/children: hand_over, mend_feeding, release_results
--      core/call: check_types, server_us
--      core/history: notes_kept, trim_history
--      core/job: apply_retention, expire_due
--      core/limit: has_slots, mend_limits
--      core/presence: look_is_due, watched_connections
--      core/run: run_look
--      core/sweep: mend_dead, next_sweep_ms, promote_due, reap_job, share_left, sweep_clock, sweep_state,
--        swept_before
--      core/wake: append_events, wake_classes, wake_push
--      schedules/schedule: due_schedules

-- A sweep of an idle queue finds none of these keys, so it skips their work and the check of their types.
local feeding, handing = prefix .. 'feeding', prefix .. 'handing'
local some = redis.call('EXISTS', due, rest, cron, parked, blocking, limits, paused, active, expiring,
  keeping, retention, feeding, handing) > 0
local state, noted, version = sweep_state(sweep), redis.pcall('HMGET', stats, 'turn', 'events', 'history'),
  redis.pcall('HGET', settings, 'version')
local known, leads, sizes = redis.pcall('GET', swept), redis.pcall('GET', leader),
  { done = redis.pcall('ZCARD', done), dead = redis.pcall('ZCARD', dead) }
local wrong = state.err or noted.err
for _, found in pairs({ version, known, leads, sizes.done, sizes.dead }) do
  wrong = wrong or type(found) == 'table'
end
if some or wrong then
  check_types({ due, rest, cron, blocking, active, done, dead, expiring, keeping, workers },
    { sweep, parked, limits, paused, stats, settings, retention, connections }, {}, { swept, leader })
end
local srv_us = server_us(now_ms, sweep)
now_ms, version, leads = math.floor(srv_us / 1000), tonumber(version or 0), leads == incarnation
local watched, stale = {}, {}
local function reply(sleep_ms, words)
  local promoted = tonumber(table.remove(words, 1) or 0)
  return { srv_us, sleep_ms, promoted, words, some and due_schedules(prefix, now_ms, 16) or {}, version,
    leads and 1 or 0, watched }
end
local repeated = swept_before(known, counter)
if repeated then return reply(next_sweep_ms(prefix, now_ms, most_ms, {}, 'cron'), repeated) end

local function leases(first, last, ...)
  return some and redis.call('ZRANGE', active, first, last, ...) or {}
end
local latest = tonumber(leases(-1, -1, 'WITHSCORES')[2] or 0)
local lease_ms, no_reap_before_ms, keep = sweep_clock(state, latest, now_ms, most_ms)
local latest_ms = now_ms + lease_ms
local ahead = leases('(' .. string.format('%d', latest_ms), '+inf', 'BYSCORE', 'LIMIT', 0, limit)
local expired = leases('-inf', '(' .. string.format('%d', now_ms), 'BYSCORE', 'LIMIT', 0,
  math.ceil(limit / 2))
if now_ms < no_reap_before_ms then expired = {} end -- anchor: no-reap-after-a-stall
-- If the hash with the lease length was lost, no lease is clamped, because the next claim writes the length
-- again.
if lease_ms == 0 then ahead = {} end -- anchor: leases-far-ahead-are-repaired
local virtual_time, events = tonumber(noted[1] or 0), notes_kept(noted[2], noted[3])

if look_is_due(state, run_id, latest, no_reap_before_ms, now_ms) then
  local next_look
  watched, next_look, stale = watched_connections(connections, workers, run_id, state.look_from or '0')
  for _, word in ipairs({ 'looked_ms', now_ms, 'look_from', next_look }) do keep[#keep + 1] = word end
end
if leads and yields ~= '1' then keep[#keep + 1], keep[#keep + 2] = 'led_ms', now_ms end
redis.call('HSET', sweep, unpack(keep))
if stale[1] then redis.call('HDEL', connections, unpack(stale)) end
for _, id in ipairs(ahead) do
  -- `active` last: if the script is cut off in between, the next sweep finds the lease again.
  for name in string.gmatch(run_look(prefix .. 'run:' .. id, 'limits')[1] or '', '%S+') do
    local held = prefix .. 'held:' .. name
    if has_slots(held) then redis.call('ZADD', held, 'XX', latest_ms, id) end
  end
  redis.call('ZADD', active, 'XX', latest_ms, id)
end
local taken, wakes, promoted, corrupt, more = {}, {}, 0, {}, #ahead == limit
for _, id in ipairs(expired) do
  local kind, fence, nonce, crashes = unpack(reap_job(prefix, id, now_ms, virtual_time, wakes, events))
  redis.call('ZREM', active, id)
  for _, field in ipairs(kind ~= 'ended' and { kind, id, fence, nonce, crashes } or {}) do
    taken[#taken + 1] = field
  end
end
if some or state.rests_from_ms then more = mend_limits(prefix, sweep, now_ms, virtual_time, wakes) or more end
if some then
  local found
  local most = share_left(limit, 2 * #expired)
  -- anchor: sweep-ends-expired-jobs
  more = expire_due(prefix, now_ms, most, virtual_time, wakes, events) == most or more
  promoted, found, corrupt = promote_due(prefix, virtual_time, now_ms, share_left(limit, 2 * #expired),
    events)
  for list in pairs(found) do wakes[list] = true end
  mend_feeding(prefix, now_ms) -- anchor: sweep-tells-forgotten-children
  more = hand_over(prefix, now_ms, virtual_time, share_left(limit, 2 * #expired + promoted + #corrupt), wakes,
    events) or more
  more = release_results(prefix, now_ms, 100) or more
  -- Jobs that were buried just now count among the dead.
  sizes.dead = redis.call('ZCARD', dead)
end
local bounds = some and redis.call('HMGET', retention, 'done_max', 'done_age_ms', 'dead_max', 'dead_age_ms')
  or {}
more = apply_retention(prefix, bounds, sizes, done_max, now_ms, virtual_time, wakes, events) or more
more = trim_history(prefix, events, now_ms) or more
if sizes.dead > 0 then mend_dead(prefix, tonumber(state.dead_from or 0)) end
for list in pairs(wakes) do wake_push(list) end
wake_classes(prefix, now_ms)
for _, id in ipairs(corrupt) do
  for _, field in ipairs({ 'corrupt', id, '0', '-', 0 }) do taken[#taken + 1] = field end
end
table.insert(taken, 1, promoted)
if promoted > 0 or #taken > 1 then
  redis.call('SET', swept, counter .. ' ' .. table.concat(taken, ' '), 'PXAT', now_ms + LATE_COPY_MS)
end
if events then append_events(prefix .. 'events', events) end
return reply(more and 0 or some and next_sweep_ms(prefix, now_ms, most_ms, {}, 'cron') or most_ms, taken)
