#!lua flags=allow-oom
-- Record the heartbeat of a worker: its description, and the incarnations whose leases it holds. until_ms 0
-- says that the worker has ended. Written to the engine's own keys and, where the format has a registry of
-- workers or a leader, there as well.
--
-- HEAD foreign/format
-- KEYS
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   worker   string  worker:<incarnation>, its last heartbeat
--   leader   string  incarnation of the worker that is the leader
-- ARGV
--   incarnation  16 hex digits
--   counter      counter of the incarnation's heartbeats
--   ttl_ms       number: how long a heartbeat counts
--   until_ms     number: server time until which this one counts; 0 = the worker has ended
--   lease_ms     length of its leases
--   sweep_ms     number: its sweep interval
--   about        JSON for display
--   others       1 for each other incarnation whose leases it still has
-- REPLY srv_us, ok | repeated | left, 1 = it is the leader, 1 = there are workers without heartbeats whose
--       leases were not swept yet, ms until its watch slot (0 = the next beat comes soon enough), version
--       of the updates (read_worker_updates.lua)
-- USES <format>: wire_beat, wire_lead
--      core/call: check_types
--      core/leader: beat_state, note_beat
--      foreign/format: format_now

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ workers }, { sweep, prefix .. 'settings' }, {}, { worker, leader })
local keys = { sweep = sweep, workers = workers, worker = worker, leader = leader }
local version = redis.call('HGET', prefix .. 'settings', 'version')
local result, leads, orphaned, watch_ms = note_beat(keys,
  { incarnation = incarnation, counter = counter, ttl_ms = ttl_ms,
  until_ms = until_ms, lease_ms = lease_ms, sweep_ms = sweep_ms, about = about,
  others = { unpack(ARGV, 14) } }, now_ms, beat_state(keys))
-- A late copy does not show that the worker is alive, and must not end a worker that has ended before.
if result ~= 'repeated' then wire_beat(format, incarnation, about, ttl_ms, result == 'left') end
if result == 'ok' and leads then wire_lead(format, incarnation, ttl_ms) end
return { srv_us, result, leads and 1 or 0, orphaned and 1 or 0, watch_ms, tonumber(version or 0) }
