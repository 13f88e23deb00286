#!lua flags=allow-oom
-- Finish jobs that a worker has run. Each lease ends once: a repeat returns the reply of the first call,
-- another token is stale (rule 5).
--
-- HEAD core/call
-- KEYS
--   active   zset    id by lease deadline (ms)
--   done     zset    id by time
--   stats    hash    counters
--   items    2 for each item: job:<id> and run:<id>
--   results  1 for each result: result:<id>
-- ARGV
--   items    2 for each item: fence, nonce
--   results  3 for each result: number of its item, ttl_ms, its record from took_ms on
-- REPLY srv_us, for each item: ok | repeated | stale, outcome; only their number where all are ok
-- USES core/call: check_types, server_us, settled
--      core/history: notes_kept
--      core/lease: finish_jobs
--      core/wake: append_events, wake_push

local feeding = settled(prefix, prefix .. 'feeding')
check_types({ active, done }, { sweep, stats }, {})
local srv_us = server_us(now_ms, sweep)
local wakes, noted = {}, redis.call('HMGET', stats, 'turn', 'waits_ms', 'events', 'history')
local events = notes_kept(noted[3], noted[4])
local finished = finish_jobs(prefix, 5, 3, math.floor(srv_us / 1000), tonumber(noted[1] or 0), wakes, events,
  noted[2], feeding)
for list in pairs(wakes) do wake_push(list) end
if events then append_events(prefix .. 'events', events) end
return { srv_us, finished }
