#!lua flags=allow-oom
-- Reap the leases of lost workers: two checks in a row have found their control connections gone (rule 39). A
-- pass over `active`, one page per call; at its end these workers are no longer listed. A worker keeps its
-- leases if it has named another connection since, or none. All workers keep theirs if the call is late or
-- the server was stalled, because the checks may no longer hold (rule 11). If a worker is alive after all,
-- the fencing token keeps this safe.
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
--   leader   string  incarnation of the worker that is the leader
--   swept    string  swept:<incarnation>, counter and reply of its last sweep
-- ARGV
--   counter       counter of the incarnation's sweeps
--   limit         number: most leases to look at, of which it reaps at most 50
--   not_after_ms  number: server time after which this call is void
--   start_ms      deadline (ms) of the last lease that the page before has read; '' = this is the first page
--   start_id      its id
--   lost          2 for each worker: incarnation, control connection
-- REPLY srv_us, where the next page starts: start_ms and start_id ('' after the last one), for each lease:
--       reaped | buried | corrupt, id, fence, nonce, crashes
-- USES core/call: check_types, server_us
--      core/history: notes_kept
--      core/sweep: reap_job, reap_leases, swept_before
--      core/wake: append_events, wake_push

check_types({ workers, due, rest, active, dead }, { sweep, parked, stats, connections }, {},
  { leader, swept })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local repeated = swept_before(redis.call('GET', swept), counter)
if repeated then
  local next_ms, next_id = table.remove(repeated, 1) or '-', table.remove(repeated, 1) or '-'
  return { srv_us, next_ms == '-' and '' or next_ms, next_ms == '-' and '' or next_id, repeated }
end
local noted = redis.call('HMGET', stats, 'turn', 'events', 'history')
local virtual_time, events = tonumber(noted[1] or 0), notes_kept(noted[2], noted[3])
-- anchor: late-reap-is-void
local late = now_ms > not_after_ms or now_ms < tonumber(redis.call('HGET', sweep, 'no_reap_before_ms') or 0)
local gone = {}
for at = 8, late and 0 or #ARGV, 2 do
  -- anchor: registration-is-unchanged
  if redis.call('HGET', connections, ARGV[at]) == ARGV[at + 1] then gone[ARGV[at]] = true end
end
if not next(gone) then return { srv_us, '', '', {} } end

local wakes = {}
local first = start_ms == ''
local taken, next_ms, next_id = reap_leases(prefix, active, not first and start_ms or nil,
  not first and start_id or nil, limit, function(incarnation) return gone[incarnation] end,
  function(id) return reap_job(prefix, id, now_ms, virtual_time, wakes, events) end)
for list in pairs(wakes) do wake_push(list) end
if #taken > 0 then
  redis.call('SET', swept, table.concat({ counter, next_ms or '-', next_id or '-', unpack(taken) }, ' '),
    'PXAT', now_ms + LATE_COPY_MS)
end
if not next_ms then
  for incarnation in pairs(gone) do
    redis.call('ZREM', workers, incarnation)
    if redis.call('GET', leader) == incarnation then redis.call('DEL', leader) end
    redis.call('HDEL', connections, incarnation)
  end
end
if events then append_events(prefix .. 'events', events) end
return { srv_us, next_ms or '', next_id or '', taken }
