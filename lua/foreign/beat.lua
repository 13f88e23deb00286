#!lua flags=allow-oom
-- Record the heartbeat of a worker: that it lives, what it is and which jobs it has; or, with until_ms 0, that it has ended: in the
-- engine's own keys and, where the format has a registry of workers or a leader, there as well.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   worker   string  worker:<incarnation>, its last beat
--   leader   string  incarnation of the worker that leads
-- ARGV
--   now_ms       '' or the time of a test
--   prefix       prefix of our own keys
--   root         what the foreign keys begin with
--   queue        name of the queue
--   layout       layout of the format, '' = its only one
--   settings     what else the format wants to know
--   incarnation  16 hex digits
--   counter      counter of the incarnation's beats
--   ttl_ms       number: how long a beat counts
--   until_ms     number: server time until which this one counts; 0 = the worker has ended
--   lease_ms     length of its leases
--   about        JSON for people
--   others       1 for each other incarnation whose leases it still has
-- REPLY srv_us, ok | repeated | left, 1 = it leads, 1 = workers have stopped beating whose leases nobody has looked for

local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local model = wire(root, prefix, queue, layout, settings, now_ms)
check_types({ workers }, { sweep }, {}, { worker, leader })
model.check()
local result, leads, orphaned = note_beat({ sweep = sweep, workers = workers, worker = worker, leader = leader },
  { incarnation = incarnation, counter = counter, ttl_ms = ttl_ms, until_ms = until_ms, lease_ms = lease_ms, about = about,
    others = { unpack(ARGV, 13) } }, now_ms)
-- A copy that comes late is no sign of life, and one that ends what has ended ends nothing.
if result ~= 'repeated' and model.beat then model.beat(incarnation, about, ttl_ms, result == 'left') end
if result == 'ok' and leads and model.lead then model.lead(incarnation, ttl_ms) end
return { srv_us, result, leads and 1 or 0, orphaned and 1 or 0 }
