#!lua flags=allow-oom -- anchor: renewals-run-when-memory-is-full
-- Renew leases. A token that is not reaped yet is renewed even after its deadline (rule 11). A call after
-- `not_after_ms` renews nothing, because a late copy of a dead worker's renewal must not hold a job for
-- another lease (rule 9).
--
-- HEAD core/call
-- KEYS
--   active   zset    id by lease deadline (ms)
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   renewal       number: counter of the worker's renewals: a call that was applied is not applied again
--   lease_ms      number: length of the lease from now
--   not_after_ms  number: server time after which this call is void
--   items         3 for each item: id, fence, nonce
-- REPLY srv_us, for each item: ok | repeated | stale | cancelled | void, deadline_ms
-- USES core/call: check_types, server_us
--      core/envelope: job_head
--      core/lease: note_lease, token_state
--      core/limit: has_slots
--      core/run: run_read, run_write

check_types({ active }, { sweep }, {})
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local reply, held = {}, {}
for at = 1, (#KEYS - 2) / 2 do
  local id, run = ARGV[3 + 3 * at], KEYS[2 + 2 * at]
  local job = job_head(KEYS[1 + 2 * at])
  local state, outcome, limits = token_state(run, job, ARGV[4 + 3 * at], ARGV[5 + 3 * at])
  local deadline_ms = tonumber(redis.call('ZSCORE', active, id) or 0)
  if state ~= 'held' or deadline_ms == 0 then -- anchor: renewal-after-the-deadline-is-accepted
    reply[#reply + 1] = outcome == 'cancelled' and 'cancelled' or 'stale'
    deadline_ms = 0
  elseif tonumber(run_read(run, 'renewal')[1] or 0) >= renewal then
    reply[#reply + 1] = 'repeated'
  elseif now_ms > not_after_ms then -- anchor: late-renewal
    reply[#reply + 1] = 'void'
  else
    reply[#reply + 1] = 'ok'
    deadline_ms = math.max(deadline_ms, now_ms + lease_ms)
    held[#held + 1] = { id = id, run = run, deadline_ms = deadline_ms, limits = limits }
  end
  reply[#reply + 1] = deadline_ms
end
if #held > 0 then note_lease(sweep, lease_ms) end
for _, lease in ipairs(held) do
  redis.call('ZADD', active, 'XX', lease.deadline_ms, lease.id)
  for limit in string.gmatch(lease.limits or '', '%S+') do
    local slots = prefix .. 'held:' .. limit
    -- anchor: renewal-renews-the-slot
    if has_slots(slots) then redis.call('ZADD', slots, 'XX', lease.deadline_ms, lease.id) end
  end
  run_write(lease.run, 'renewal', renewal)
end
return { srv_us, reply }
