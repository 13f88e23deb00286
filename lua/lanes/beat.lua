#!lua flags=allow-oom
-- Record the heartbeat of a worker: that it is alive, its description and the incarnations whose leases it holds; or, with
-- until_ms 0, that it has ended. If there is no leader, the worker becomes the leader, whose sweeps come at once; that only saves work.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   worker   string  worker:<incarnation>, its last heartbeat
--   leader   string  incarnation of the worker that is the leader
-- ARGV
--   now_ms       '' or the time of a test
--   prefix       prefix of the queue's keys
--   incarnation  16 hex digits
--   counter      counter of the incarnation's heartbeats
--   ttl_ms       number: how long a heartbeat counts
--   until_ms     number: server time until which this one counts; 0 = the worker has ended
--   lease_ms     length of its leases
--   about        JSON for display
--   others       1 for each other incarnation whose leases it still has
-- REPLY srv_us, ok | repeated | left, 1 = it is the leader, 1 = there are workers without heartbeats whose leases were not swept yet

settled(prefix)
check_types({ workers }, { sweep }, {}, { worker, leader })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local result, leads, orphaned = note_beat({ sweep = sweep, workers = workers, worker = worker, leader = leader },
  { incarnation = incarnation, counter = counter, ttl_ms = ttl_ms, until_ms = until_ms, lease_ms = lease_ms, about = about,
    others = { unpack(ARGV, 9) } }, now_ms)
return { srv_us, result, leads and 1 or 0, orphaned and 1 or 0 }
