#!lua flags=allow-oom
-- Reap the leases of workers whose heartbeats have stopped, before the leases expire. A pass over `active`,
-- one page per call. A recent claim or renewal counts as a sign of life: the lease stays. Its worker
-- counts as alive for the rest of a heartbeat's time. Workers renew as often as they send heartbeats, but on
-- another connection, so a worker counts as dead only if both are lost. After a stall of the server nothing
-- is reaped until workers could send heartbeats again (rule 11). If a worker is alive after all, the fencing
-- token keeps this safe.
--
-- HEAD core/call
-- KEYS
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   due      zset    sequence and id by due_ms
--   rest     zset    lanes and classes by the time (ms) at which their rate window or pause ends
--   parked   hash    lane -> the limit that it waits for
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   stats    hash    counters
--   connections hash incarnation -> its control connection: client id and run id of the server
--   swept    string  swept:<incarnation>, counter and reply of its last sweep
-- ARGV
--   counter  counter of the incarnation's sweeps
--   limit    number: most leases to look at, of which it reaps at most 50
--   most_ms  number: upper bound of the sleep that the reply allows
-- REPLY srv_us, 0 = call again | most_ms, for each lease: reaped | buried | corrupt, id, fence, nonce,
--       crashes
-- USES core/call: check_types, server_us
--      core/history: notes_kept
--      core/sweep: reap_job, reap_orphans, swept_before
--      core/wake: append_events, wake_push

check_types({ workers, due, rest, active, dead }, { sweep, parked, stats, connections }, {}, { swept })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local repeated = swept_before(redis.call('GET', swept), counter)
if repeated then return { srv_us, most_ms, repeated } end
local noted = redis.call('HMGET', stats, 'turn', 'events', 'history')
local virtual_time, events = tonumber(noted[1] or 0), notes_kept(noted[2], noted[3])

local wakes = {}
local keys = { sweep = sweep, workers = workers, active = active, connections = connections }
local taken, more = reap_orphans(prefix, keys, now_ms, limit, function(id)
  return reap_job(prefix, id, now_ms, virtual_time, wakes, events)
end)
for list in pairs(wakes) do wake_push(list) end
if #taken > 0 then
  redis.call('SET', swept, counter .. ' ' .. table.concat(taken, ' '), 'PXAT', now_ms + LATE_COPY_MS)
end
if events then append_events(prefix .. 'events', events) end
return { srv_us, more and 0 or most_ms, taken }
