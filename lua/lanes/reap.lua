#!lua flags=allow-oom -- anchor: sweeps-run-when-memory-is-full
-- Take away expired leases: the token is revoked, and the job returns to its place in the lane or, after too many crashes, goes
-- to the dead (rule 12). Leases that end too far ahead because the clock stepped back are cut to the longest lease length, once
-- (rule 10). After a stall nothing is taken until workers could renew (rule 11). Also keeps the bounds of `done` and `dead`,
-- drops entries without a job, compares limits with what is leased (rule 20), and pushes the missing wake markers.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   due      zset    sequence and id by due_ms
--   rest     zset    lanes and classes by the time (ms) at which their rate window or pause ends
--   parked   hash    lane -> the limit that it waits for
--   blocking zset    limits with parked lanes by the time (ms) of their last check
--   limits   hash    definitions of limits
--   paused   hash    pauses
--   active   zset    id by lease deadline (ms)
--   done     zset    id by time
--   dead     zset    id by time
--   stats    hash    counters
--   swept    string  swept:<incarnation>, counter and reply of its last sweep
--   retention hash   bounds of the ended jobs that are kept
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of the queue's keys
--   counter   counter of the incarnation's sweeps
--   limit     number: most leases to take away
--   most_ms   number: upper bound of the sleep that the reply allows
--   done_max  number: entries of `done` that stay, unless the queue has its own bound
-- REPLY srv_us, sleep_ms, for each lease: reaped | buried | corrupt, id, fence, nonce, crashes

settled(prefix)
check_types({ due, rest, blocking, active, done, dead }, { sweep, parked, limits, paused, stats, retention }, {}, { swept })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local repeated = swept_before(swept, counter)
if repeated then return { srv_us, next_sweep_ms(prefix, now_ms, most_ms, {}), repeated } end

local lease_ms, no_reap_before_ms, keep = sweep_clock(sweep, active, now_ms, most_ms)
local latest_ms = now_ms + lease_ms
local ahead = redis.call('ZRANGE', active, '(' .. string.format('%d', latest_ms), '+inf', 'BYSCORE', 'LIMIT', 0, limit)
local expired = redis.call('ZRANGE', active, '-inf', '(' .. string.format('%d', now_ms), 'BYSCORE', 'LIMIT', 0, limit)
if now_ms < no_reap_before_ms then expired = {} end -- anchor: no-reap-after-a-stall
-- If the hash with the lease length was lost, no lease is cut: the next claim writes the length again.
if lease_ms == 0 then ahead = {} end -- anchor: leases-far-ahead-are-repaired
local noted = redis.call('HMGET', stats, 'turn', 'events')
local turn, events = tonumber(noted[1] or 0), noted[2] and { keep = noted[2] }

redis.call('HSET', sweep, unpack(keep))
for _, id in ipairs(ahead) do
  -- `active` last: if the script is cut off in between, the next sweep finds the lease again.
  for name in string.gmatch(redis.call('HGET', prefix .. 'run:' .. id, 'limits') or '', '%S+') do
    redis.call('ZADD', prefix .. 'held:' .. name, 'XX', latest_ms, id)
  end
  redis.call('ZADD', active, 'XX', latest_ms, id)
end
local taken, wakes = {}, {}
for _, id in ipairs(expired) do
  local kind, fence, nonce, crashes = unpack(reap_job(prefix, id, now_ms, turn, wakes, events))
  redis.call('ZREM', active, id)
  for _, field in ipairs(kind ~= 'ended' and { kind, id, fence, nonce, crashes } or {}) do taken[#taken + 1] = field end
end
local over = keep_bounds(prefix, retention, done_max, now_ms, turn, wakes, events)
mend_dead(prefix)
local more = mend_limits(prefix, sweep, now_ms, turn, wakes) or over
for list in pairs(wakes) do wake_push(list) end
wake_classes(prefix, now_ms)
if #taken > 0 then redis.call('SET', swept, counter .. ' ' .. table.concat(taken, ' '), 'PXAT', now_ms + 20000) end
if events then tell_events(prefix .. 'events', events) end
return { srv_us, (more or #ahead == limit) and 0 or next_sweep_ms(prefix, now_ms, most_ms, {}), taken }
