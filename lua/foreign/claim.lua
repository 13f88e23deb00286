#!lua flags=allow-oom
-- Claim: end leases of jobs that the worker has run, promote due jobs, then lease up to `most` jobs of some
-- names to one worker incarnation (rules 4, 6 and 13). A claim that is void or stale leases nothing, but its
-- ends count.
--
-- HEAD foreign/format
-- KEYS
--   active   zset    id by lease deadline (ms)
--   stats    hash    counters
--   limits   hash    definitions of limits
--   paused   hash    pauses
--   record   string  claim:<incarnation>, the last claim and the jobs that it leased
--   items    1 for each item: run:<id>
-- ARGV
--   incarnation   16 hex digits
--   counter       claim counter of the incarnation
--   most          number: most jobs to lease
--   lease_ms      number: length of the lease
--   not_after_ms  number: server time after which the claim is void
--   owner         name of the worker, for display
--   most_ms       number: upper bound of the sleep that the reply allows
--   crashed_max   number: most jobs to lease that have crashed before
--   lowest        number: '' or the lowest priority of the jobs to lease
--   highest       number: '' or the highest priority of the jobs to lease
--   worker        packed: server, stack, region, capabilities and routes, those two with spaces between
--   class_count   number: how many names
--   classes       1 for each class: a name
--   items         5 for each item: as in end.lua
-- REPLY srv_us, reply to the ends (see end.lua), kind, sleep_ms, ids set aside, jobs: id fence deadline_ms
--       claims failures crashes body
-- USES core/call: check_types
--      core/wake: append_events
--      foreign/claim: foreign_claim, foreign_promote
--      foreign/ends: foreign_ends
--      foreign/format: format_now, unpack_worker
--      foreign/ids: record_of
--      foreign/looks: sleep_for

check_types({ active }, { sweep, stats, limits, paused, prefix .. 'scan' }, { prefix .. 'wake' }, { record })
local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
local keep = redis.call('HGET', stats, 'events')
local events = keep and { keep = keep }
local ended = foreign_ends(prefix, format, 7, 19 + class_count, now_ms, events)
local _, unread = foreign_promote(prefix, format, 100)

local classes, names = {}, {}
for at = 1, class_count do
  names[at] = ARGV[18 + at]
  classes[names[at]] = true
end
local kind, jobs, corrupt = foreign_claim(prefix, format,
  { sweep = sweep, active = active, stats = stats, record = record },
  { classes = classes, key = record_of(names) .. '  ' .. worker .. ' ' .. ARGV[15] .. ' ' .. ARGV[16],
  incarnation = incarnation,
    counter = counter, most = most, lease_ms = lease_ms, not_after_ms = not_after_ms, owner = owner,
    crashed_max = crashed_max,
    worker = unpack_worker(worker, lowest and highest and { lowest, highest } or nil) }, now_ms, events)
for _, id in ipairs(unread) do corrupt[#corrupt + 1] = id end
if events then append_events(prefix .. 'events', events) end
return { srv_us, ended, kind, sleep_for(prefix, now_ms, most_ms, format), corrupt, jobs }
