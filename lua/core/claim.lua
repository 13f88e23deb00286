#!lua flags=allow-oom -- anchor: claims-run-when-memory-is-full
-- Claim: finish the jobs that the worker has run, promote due jobs, then lease up to `most` jobs of some
-- classes to one worker incarnation (rules 4, 6, 13 and 18). A claim that is void or stale leases nothing,
-- but its finishes count.
--
-- HEAD core/call
-- KEYS
--   due      zset    sequence and id by due_ms
--   rest     zset    lanes and classes by the time (ms) at which their rate window or pause ends
--   parked   hash    lane -> the limit that it waits for
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   stats    hash    counters
--   record   string  claim:<incarnation>, the last claim and the jobs that it leased
--   done     zset    id by time
--   classes  2 for each class: ready:<class> and wake:<class>
--   items    2 for each item: job:<id> and run:<id>
--   results  1 for each result: result:<id>
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
--   class_count   number: how many classes
--   classes       1 for each class: its name
--   items         2 for each item: fence, nonce
--   results       3 for each result: number of its item, ttl_ms, its record from took_ms on
-- REPLY srv_us, finish reply (see finish.lua), kind, sleep_ms, corrupt ids, jobs: id fence deadline_ms claims
--       failures crashes envelope; then, if there are any, those that may read what their parents have left
--       (left_by_parents)
-- RARELY promote_due
-- USES core/call: check_types, server_us, settled
--      core/claim: claim_jobs
--      core/history: notes_kept
--      core/lease: finish_jobs, lease_lengths
--      core/sweep: next_sweep_ms, promote_due
--      core/wake: append_events, wake_push, wake_served

local classes, ready, wake_lists, finishing = {}, {}, {}, #KEYS > 9 + 2 * class_count
for at = 1, class_count do
  classes[at] = ARGV[13 + at]
  ready[at], wake_lists[at] = KEYS[8 + 2 * at], KEYS[9 + 2 * at]
end
ready[class_count + 1] = dead
if finishing then ready[class_count + 2] = done end
-- One read is enough for most queues, which have none of these.
local special = settled(prefix, prefix .. 'feeding', prefix .. 'paused', prefix .. 'limits',
  prefix .. 'expiring')
check_types(ready, { parked }, wake_lists)
-- The other keys are read once, which also detects a wrong type.
local noted, last_claim = redis.pcall('HMGET', stats, 'turn', 'waits_ms', 'events', 'history'),
  redis.pcall('GET', record)
local heads, lengths = { active = 0, due = 0, rest = 0 }, lease_lengths(sweep)
local wrong = noted.err or lengths.err or type(last_claim) == 'table'
for name in pairs(heads) do
  heads[name] = redis.pcall('ZRANGE', prefix .. name, 0, 0, 'WITHSCORES')
  wrong = wrong or heads[name].err
end
if wrong then check_types({ due, rest, active }, { sweep, stats }, {}, { record }) end
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local virtual_time, events = tonumber(noted[1] or 0), notes_kept(noted[3], noted[4])
local is_due = tonumber(heads.due[2] or now_ms + 1) <= now_ms
  or tonumber(heads.rest[2] or now_ms + 1) <= now_ms
local _, wakes, unread, finished, more, moved = 0, {}, {}, 0, false, false
if is_due then _, wakes, unread = promote_due(prefix, virtual_time, now_ms, 100, events) end
local feeding = special and redis.call('EXISTS', prefix .. 'feeding') == 1
-- Where jobs wait for others, each claim hands some of them on.
if finishing or feeding then
  finished, more, moved = finish_jobs(prefix, 10 + 2 * class_count, 14 + class_count, now_ms, virtual_time,
    wakes, events, noted[2], feeding)
end
local kind, jobs, corrupt, open, limited, left = claim_jobs({ sweep = sweep, active = active, stats = stats,
  record = record },
  { prefix = prefix, classes = classes, incarnation = incarnation, counter = counter, most = most,
  lease_ms = lease_ms,
    not_after_ms = not_after_ms, owner = owner, crashed_max = crashed_max, lowest = lowest, highest = highest,
    corrupt = unread, virtual_time = virtual_time,
    last_claim = last_claim, lengths = lengths, special = special }, now_ms, events)
wake_served(prefix, classes, open, wakes)
for list in pairs(wakes) do wake_push(list) end
if events then append_events(prefix .. 'events', events) end
-- The heads that were read at the start still hold, unless a write may have changed them. A claim adds its
-- own deadline.
if is_due or moved or limited or #corrupt > 0 then
  heads = {}
elseif finishing then
  heads.active = nil
elseif kind == 'leased' then
  heads.active = { '', math.min(tonumber(heads.active[2] or jobs[3]), jobs[3]) }
end
return { srv_us, finished, kind, more and 0 or next_sweep_ms(prefix, now_ms, most_ms, heads), corrupt, jobs,
  left and left[1] and left or nil }
