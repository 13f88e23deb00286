#!lua flags=allow-oom
-- Renew leases. Any token that is not reaped yet is renewed, also after its deadline (rule 11). A call after
-- `not_after_ms` renews nothing, because a late copy of a dead worker's renewal must not hold a job for
-- another lease (rule 9).
--
-- HEAD foreign/format
-- KEYS
--   active   zset  id by lease deadline (ms)
--   items    1 for each item: run:<id>
-- ARGV
--   renewal       number: counter of the worker's renewals: a call that was applied is not applied again
--   lease_ms      number: length of the lease from now
--   not_after_ms  number: server time after which this call is void
--   items         3 for each item: id, fence, nonce
-- REPLY srv_us, for each item: ok | repeated | void | stale | cancelled, deadline_ms (0 when stale or
--       cancelled)
-- USES <format>: wire_extend
--      core/call: check_types
--      core/lease: note_lease
--      core/limit: has_slots
--      foreign/claim: foreign_token, own_number
--      foreign/format: format_now

check_types({ active }, { sweep }, {})
local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
local reply, held = {}, {}
for at = 1, #KEYS - 2 do
  local id, fence, nonce = ARGV[3 * at + 7], ARGV[3 * at + 8], ARGV[3 * at + 9]
  local run_key = KEYS[2 + at]
  local state, outcome, run, deadline_ms = foreign_token(prefix, format, id, fence, nonce)
  if state ~= 'held' then
    reply[#reply + 1] = outcome == 'cancelled' and 'cancelled' or 'stale'
    deadline_ms = 0
  elseif own_number(redis.call('HGET', run_key, 'renewal')) >= renewal then
    reply[#reply + 1] = 'repeated'
  elseif now_ms > not_after_ms then -- anchor: late-foreign-renewal-is-void
    reply[#reply + 1] = 'void'
  else
    reply[#reply + 1] = 'ok'
    deadline_ms = math.max(deadline_ms, now_ms + lease_ms)
    held[#held + 1] = { id = id, run = run_key, limits = run.limits, until_ms = deadline_ms,
      lease_ms = deadline_ms - now_ms, token = fence .. ':' .. nonce, fence = fence, nonce = nonce,
      owner = redis.call('HGET', run_key, 'owner') or '' }
  end
  reply[#reply + 1] = deadline_ms
end
if #held > 0 then note_lease(sweep, lease_ms) end
for _, lease in ipairs(held) do
  -- The lock first: if the call is cut off in between, the next copy finds the renewal not applied and does
  -- both.
  wire_extend(format, lease.id, lease)
  redis.call('ZADD', active, lease.until_ms, lease.id)
  local slots = lease.limits ~= '' and prefix .. 'held:' .. lease.limits
  if slots and has_slots(slots) then redis.call('ZADD', slots, 'XX', lease.until_ms, lease.id) end
  redis.call('HSET', lease.run, 'renewal', renewal)
end
return { srv_us, reply }
