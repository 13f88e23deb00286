#!lua flags=allow-oom
-- Read the state of a job. A call that names a waiter also waits for the job's end: one of this engine's
-- workers adds it to the stream wait:<waiter>. Foreign clients send no such notification, so the caller also
-- polls.
--
-- HEAD foreign/format
-- KEYS
--   stats  hash    counters
--   run    string  run:<id>
--   waits  string  waits:<id>, those that wait for its end
--   wait   stream  wait:<waiter>, the ids that have ended
-- ARGV
--   id        the job
--   waiter    16 hex digits; '' = do not wait
-- REPLY srv_us, pending | finished | cancelled | discarded | skipped | dead | gone, fence (0: not compared),
--       ended_ms (0 = not known), record, error
-- USES <format>: wire_ended, wire_read
--      core/call: check_types
--      foreign/format: format_now
--      foreign/looks: place_of

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({}, { stats, run }, {}, { waits })

local state = place_of(run, id, format)
-- The job may be between two structures for a moment, in formats that move it in two steps.
local between = state == 'gone' and wire_read(format, id)
if state == 'waiting' or state == 'delayed' or state == 'active' or between and between.kind == 'J' then
  if waiter ~= '' then
    local waiters = redis.call('GET', waits) or ''
    -- As in lua/looks/look.lua: only its reader creates the stream.
    if redis.call('EXISTS', wait) == 0 then redis.call('XADD', wait, '0-1', 'id', '') end
    redis.call('PEXPIREAT', wait, now_ms + 60000)
    if not string.find(waiters, waiter, 1, true) then
      waiters = string.sub(waiters .. ' ' .. waiter, -1700)
    end
    redis.call('SET', waits, waiters, 'PXAT', now_ms + 30000)
    redis.call('HSET', stats, 'waits_ms', string.format('%d', now_ms + 30000))
  end
  return { srv_us, 'pending', '0', 0, '', '' }
end
-- A job whose handler has ended it without doing its work is reported as discarded.
local shown = { cancelled = 'cancelled', discarded = 'discarded', skipped = 'skipped',
  rerouted = 'discarded' }
if shown[state] then
  local why = state == 'skipped' and redis.call('HGET', run, 'error')
  return { srv_us, shown[state], '0', 0, '', why or '' }
end
local over = wire_ended(format, id)
if over then
  return { srv_us, over.state, '0', over.ended_ms or 0, over.record or '', over.error or '' }
end
if state == 'dead' then return { srv_us, 'dead', '0', 0, '', redis.call('HGET', run, 'error') or '' } end
return { srv_us, state == 'finished' and 'finished' or 'gone', '0', 0, '', '' }
