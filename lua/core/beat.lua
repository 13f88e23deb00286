#!lua flags=allow-oom
-- Record the heartbeat of a worker: its description, and the incarnations whose leases it holds. until_ms 0
-- says that the worker has ended. Leader election: if there is no leader, or it has not swept in its time,
-- this worker becomes the leader and sweeps next. A follower gets the time at which it checks the leader
-- (rule 13).
--
-- HEAD core/call
-- KEYS
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   settings hash    settings of workers, and the version of settings and targets
--   worker   string  worker:<incarnation>, its last heartbeat
--   leader   string  incarnation of the worker that is the leader
--   connections hash incarnation -> its control connection: client id and run id of the server
--   active   zset    id by lease deadline (ms)
--   era      list    the servers that the queue was on
-- ARGV
--   incarnation  16 hex digits
--   counter      counter of the incarnation's heartbeats
--   ttl_ms       number: how long a heartbeat counts
--   until_ms     number: server time until which this one counts; 0 = the worker has ended
--   lease_ms     length of its leases
--   sweep_ms     number: its sweep interval
--   about        JSON for display
--   connection   its control connection, client id and run id of the server; '' = it has none, or nobody may
--                look at it
--   others       1 for each other incarnation whose leases it still has
-- REPLY srv_us, ok | repeated | left, 1 = it is the leader, 1 = there are workers without heartbeats whose
--       leases were not swept yet, ms until it checks the leader (0 = the next beat comes soon enough),
--       version of the updates (read_worker_updates.lua), the latest entry of `era`, 1 = nobody looks at the
--       control connections of workers, so it has to sweep (rule 39)
-- USES core/call: check_types, server_us
--      core/leader: beat_state, note_beat

local keys = { sweep = sweep, workers = workers, worker = worker, leader = leader, connections = connections,
  active = active }
local state, last, leads = beat_state(keys)
local version = redis.pcall('HGET', settings, 'version')
if state.err or type(last) == 'table' or type(leads) == 'table' or type(version) == 'table' then
  check_types({}, { sweep, settings }, {}, { worker, leader })
end
check_types({ workers, active }, { connections }, { era })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local result, is_leader, orphaned, watch_ms, looks =
  note_beat(keys, { incarnation = incarnation, counter = counter, ttl_ms = ttl_ms,
  until_ms = until_ms, lease_ms = lease_ms, sweep_ms = sweep_ms, about = about, connection = connection,
  others = { unpack(ARGV, 11) } }, now_ms, state, last, leads)
return { srv_us, result, is_leader and 1 or 0, orphaned and 1 or 0, watch_ms, tonumber(version or 0),
  redis.call('LINDEX', era, 0) or '', looks and 1 or 0 }
