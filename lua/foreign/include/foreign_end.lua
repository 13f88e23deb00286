-- The wire's half of the end of a lease, then ours: slots of limits come free, and `active` is left last, so that whatever was cut off
-- before is found by the next copy of the call, or by a sweep. What was noted in `run` before says how: kind, due_ms, failures. Nothing
-- is done on the wire where a foreign client holds the job by now. `lease`: id, job, limits, kind, due_ms, failures, error, trace, value,
-- took_ms, token, outcome, charge; `redo`: an earlier copy may have done a part of it.
local function foreign_end(prefix, format, lease, now_ms, redo)
  local id, job = lease.id, lease.job
  local failure = { error = lease.error or '', trace = lease.trace or '', due_ms = lease.due_ms, charge = lease.charge, failures = lease.failures, redo = redo }
  if redo and format.locked(id) and not format.mine(id, lease.token) then
    lease.kind = 'left'
  elseif lease.kind == 'finish' then
    format.done(id, job, lease.value, tonumber(lease.took_ms or 0), redo)
  elseif lease.kind == 'release' then
    format.back(id, job, true, redo)
  elseif lease.kind == 'retry' then
    -- Without a wait it goes to the waiting jobs. Its time may have come since a copy was cut off: among the delayed ones it stays.
    failure.due_ms = lease.due_ms == 0 and now_ms or math.max(lease.due_ms, redo and now_ms + 1 or 0)
    format.again(id, job, failure, redo)
  elseif lease.kind == 'bury' then
    format.bury(id, job, failure, redo)
  elseif lease.kind == 'drop' then
    format.drop(id, job, lease.outcome, redo)
  end
  for limit in string.gmatch(lease.limits or '', '%S+') do
    redis.call('ZREM', prefix .. 'held:' .. limit, id)
    if lease.kind == 'release' and lease.fence then redis.call('ZREM', prefix .. 'rate:' .. limit, id .. ':' .. lease.fence) end
  end
  redis.call('ZREM', prefix .. 'active', id)
end
