#!lua flags=allow-oom
-- Read the state of a job. A call that names a waiter also waits for the job's end, which is then added to
-- the stream wait:<waiter>. Read and registration are one step, so no end falls between them. A copy of the
-- call registers the same waiter only once.
--
-- HEAD core/call
-- KEYS
--   job      string  job:<id>, the envelope or its tombstone
--   run      string  run:<id>
--   result   string  result:<id>
--   done     zset    id by time
--   dead     zset    id by time
--   stats    hash    counters
--   waits    string  waits:<id>, those that wait for its end
--   wait     stream  wait:<waiter>, the ids that have ended
-- ARGV
--   id       the job
--   waiter   16 hex digits; '' = do not wait
-- REPLY srv_us, pending | finished | cancelled | discarded | skipped | expired | rejected | dead | kept |
--       gone, fence, ended_ms (0 = not known), record, error
-- USES core/call: check_types, server_us
--      core/envelope: checked_head
--      core/job: done_as
--      core/run: run_read

check_types({ done, dead }, { sweep, stats }, {}, { run })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = checked_head(job)
local record = redis.call('GET', result) or ''
local ended, done_ms = done_as(prefix, id)
local dead_ms = tonumber(redis.call('ZSCORE', dead, id) or 0)
if known and known.kind == 'T' then
  -- A job whose handler has ended it without doing its work is reported as discarded.
  local shown = { rerouted = 'discarded', orphaned = 'rejected', moving = 'pending' }
  -- anchor: finished-result-is-shown
  return { srv_us, shown[known.outcome] or known.outcome or 'gone', known.fence, done_ms or 0, record, '' }
end
local state = run_read(run, 'fence', 'error')
if dead_ms > 0 then return { srv_us, 'dead', state[1] or '0', dead_ms, record, state[2] or '' } end
if not known then
  return { srv_us, ended or record ~= '' and 'kept' or 'gone', '0', done_ms or 0, record, '' }
end
if waiter ~= '' then
  local waiters = redis.call('GET', waits) or ''
  -- Only this call creates the stream, with an entry, because a stream cannot be empty. Scripts that end jobs
  -- only append to an existing one, so a caller that waits no longer leaves nothing behind.
  if redis.call('EXISTS', wait) == 0 then redis.call('XADD', wait, '0-1', 'id', '') end
  redis.call('PEXPIREAT', wait, now_ms + 60000)
  if not string.find(waiters, waiter, 1, true) then waiters = string.sub(waiters .. ' ' .. waiter, -1700) end
  redis.call('SET', waits, waiters, 'PXAT', now_ms + 30000)
  redis.call('HSET', stats, 'waits_ms', string.format('%d', now_ms + 30000))
end
return { srv_us, 'pending', state[1] or '0', 0, '', '' } -- anchor: running-job-is-pending
