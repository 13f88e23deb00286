#!lua flags=allow-oom
-- Reap the leases of workers whose heartbeats have stopped, before the leases expire (the counterpart of
-- lua/core/orphans.lua). A pass over `active`, one page per call.
--
-- HEAD foreign/format
-- KEYS
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   active   zset    id by lease deadline (ms)
--   stats    hash    counters
--   swept    string  swept:<incarnation>, counter and reply of its last sweep
-- ARGV
--   counter   counter of the incarnation's sweeps
--   limit     number: most leases to look at, of which it reaps at most 50
--   most_ms   number: upper bound of the sleep that the reply allows
-- REPLY srv_us, 0 = call again | most_ms, for each lease: reaped | buried, id, fence, nonce, crashes
-- USES core/call: check_types
--      core/sweep: reap_orphans, swept_before
--      core/wake: append_events, wake_push
--      foreign/ends: reap_foreign
--      foreign/format: format_now
--      foreign/ids: record_of, words_of

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ workers, active }, { sweep, stats }, { prefix .. 'wake' }, { swept })
local repeated = swept_before(redis.call('GET', swept), counter)
if repeated then return { srv_us, most_ms, words_of(table.concat(repeated, ' ')) } end
local noted = redis.call('HGET', stats, 'events')
local events = noted and { keep = noted }

local taken, more = reap_orphans(prefix, { sweep = sweep, workers = workers, active = active }, now_ms, limit,
  function(id)
  return reap_foreign(prefix, id, now_ms, format, events)
end)
if #taken > 0 then wake_push(prefix .. 'wake') end
if #taken > 0 then
  redis.call('SET', swept, counter .. ' ' .. record_of(taken), 'PXAT', now_ms + LATE_COPY_MS)
end
if events then append_events(prefix .. 'events', events) end
return { srv_us, more and 0 or most_ms, taken }
