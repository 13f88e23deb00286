#!lua flags=allow-oom
-- End the restore of a backup. First the jobs that were leased when the backup was made are given back, some
-- per call. They are claimable at once, without a crash or a failure charged. Their fences are no lower than
-- the time, so their former holders are refused (rule 6). When none is left, a new era begins, and the
-- queue is open.
--
-- KEYS
--   sweep   string  one word; then its hash again
--   seq     list    who restores what (restore_load.lua); then the last sequence again
--   era     list    the servers that the queue was on
--   stats   hash    counters
--   active  zset    id by lease deadline (ms)
--   dead    zset    id by time
--   due     zset    sequence and id by due_ms
-- ARGV
--   prefix       prefix of the queue's keys
--   backup       id of the backup
--   owner        the process that restores it
--   replid       replication id of this server
--   limit        number: most jobs to give back in this call
--   sequence     the last sequence of the backup
--   sweep_value  the value of `sweep` in the backup, '' = none
--   seq_value    the value of `seq`, '' = none
-- REPLY srv_us, ok | more (call again) | other (another process has begun since), how many jobs were given
--       back in all
-- USES core/call: check_types, server_us, settled
--      core/envelope: job_head
--      core/lane: due_member, to_lane
--      core/limit: free_slots
--      core/run: run_is_readable, run_look, run_write
--      core/sweep: reap_job

settled(prefix)
check_types({ active, dead, due }, { stats }, { era })
-- As in restore_load.lua.
local srv_us = server_us('', sweep)
local restored, total = string.match(redis.call('HGET', stats, 'restored') or '', '^(%S+) (%d+)')
local now_ms = math.floor(srv_us / 1000)
if redis.call('TYPE', seq).ok ~= 'list' then
  return { srv_us, restored == backup and 'ok' or 'other', tonumber(total or 0) }
end
if redis.call('LINDEX', seq, 0) ~= 'restore ' .. backup .. ' ' .. owner then return { srv_us, 'other', 0 } end
local virtual_time, wakes = tonumber(redis.call('HGET', stats, 'turn') or 0), {}
-- Once all is there, leases are those of workers that have begun.
local given_back = restored == backup and {} or redis.call('ZRANGE', active, 0, limit - 1)
for _, id in ipairs(given_back) do
  local run, job = prefix .. 'run:' .. id, job_head(prefix .. 'job:' .. id)
  local state = run_look(run, 'fence', 'limits', 'requeued_ms')
  local died_ms = tonumber(redis.call('ZSCORE', dead, id) or -1)
  if not job or job.kind ~= 'J' or not run_is_readable(run) then
    -- What a call that was cut off has left: as a sweep does it.
    reap_job(prefix, id, now_ms, virtual_time, wakes)
  else
    if died_ms >= 0 and died_ms < tonumber(state[3] or 0) then
      -- Left over from a requeue that was cut off, as reap_job has it.
      redis.call('ZREM', dead, id)
      died_ms = -1
    end
    if state[2] and state[2] ~= '' then free_slots(prefix, state[2], id, virtual_time, wakes) end
    if died_ms < 0 and not redis.call('ZSCORE', due, due_member(job.sequence, id)) then
      to_lane(prefix, id, job, virtual_time)
    end

    run_write(run, 'nonce', '', 'limits', '', 'fence', math.max(tonumber(state[1] or 0), now_ms))
  end
  redis.call('ZREM', active, id)
end
if restored ~= backup then
  total = tonumber(redis.call('LINDEX', seq, 1)) + #given_back
  redis.call('LSET', seq, 1, total)
  if redis.call('ZCARD', active) > 0 then return { srv_us, 'more', total } end
  redis.call('LPUSH', era, replid .. ' ' .. sequence .. string.format(' %d', now_ms))
  redis.call('LTRIM', era, 0, 15)
  redis.call('HSET', stats, 'restored', backup .. ' ' .. total)
end
-- From here on nothing is loaded again. The queue opens for workers, then for producers.
if redis.call('TYPE', sweep).ok ~= 'string' then
  -- Cut off before: it is open for workers, who have used it since.
elseif sweep_value ~= '' then
  redis.call('RESTORE', sweep, 0, sweep_value, 'REPLACE')
else
  redis.call('DEL', sweep)
end
if seq_value ~= '' then redis.call('RESTORE', seq, 0, seq_value, 'REPLACE') else redis.call('DEL', seq) end
return { srv_us, 'ok', tonumber(total) }
