#!lua flags=allow-oom
-- End leases: each job is finished, given back, retried, buried, or dropped for good. Each lease ends once: a
-- repeat returns the reply of the first call, another token is stale (rule 5).
--
-- HEAD foreign/format
-- KEYS
--   active   zset  id by lease deadline (ms)
--   stats    hash  counters
--   items    1 for each item: run:<id>
-- ARGV
--   items     5 for each item: finish | release | retry | bury | drop, id, fence, nonce, packed: value,
--             ttl_ms, took_ms of a finish that returned something; error, trace, delay_ms, failures that it
--             counts as (0 or 1); outcome of a drop
-- REPLY srv_us, for each item: ok | repeated | stale, outcome; only their number where all have finished
-- USES core/call: check_types
--      core/wake: append_events, wake_push
--      foreign/ends: foreign_due_sooner, foreign_ends, foreign_next_due_ms
--      foreign/format: format_now

check_types({ active }, { sweep, stats }, { prefix .. 'wake' })
local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
local keep = redis.call('HGET', stats, 'events')
local events = keep and { keep = keep }
local before_ms
for at = 7, #ARGV, 5 do
  if ARGV[at] == 'retry' then before_ms = before_ms or foreign_next_due_ms(format) end
end
local ended = foreign_ends(prefix, format, 4, 7, now_ms, events)
if before_ms and foreign_due_sooner(format, before_ms) then wake_push(prefix .. 'wake') end
if events then append_events(prefix .. 'events', events) end
return { srv_us, ended }
