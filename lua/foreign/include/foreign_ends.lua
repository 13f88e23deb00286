-- End leases, each in its own way: finish, release, retry, bury or drop. Item number `at` is KEYS run:<id> from `keys_at` on, ARGV kind,
-- id, fence, nonce and packed fields from `arguments_at` on. What ends the token is written first, with all that a sweep needs to carry
-- on where this was cut off; then the wire, then what is left of ours.
-- Returns 2 values an item, result (ok | repeated | stale) and outcome; only their number where all have finished.
-- helpers: fields, foreign_token, foreign_end, error_note, tell_ended, events
local function foreign_ends(prefix, format, keys_at, arguments_at, now_ms, helpers)
  local count = #KEYS - keys_at + 1
  local reply, planned, known, counters, finished, waits_ms = {}, {}, {}, {}, 0, 0
  for at = 1, count do
    local place = arguments_at + 5 * at - 5
    local kind, id, fence, nonce, packed = ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3], ARGV[place + 4]
    local state, outcome, run, deadline_ms = helpers.foreign_token(prefix, format, id, fence, nonce)
    if known[id] then
      state, outcome = 'repeated', known[id]
    elseif state == 'held' or (state == 'repeated' and deadline_ms and run.ending ~= '') then
      local said, job = helpers.fields(packed), format.read(id)
      if not job or job.kind ~= 'J' then job = { kind = 'gone', name = '', failures = 0, attempts = 1, priority = 5, body = job and job.body or '' } end
      local lease = { id = id, run = KEYS[keys_at + at - 1], job = job, fence = fence, limits = run.limits, deadline_ms = deadline_ms,
        token = fence .. ':' .. nonce, kind = kind, asked = kind, redo = state == 'repeated', failures = job.failures or 0 }
      if kind == 'finish' then
        lease.value, lease.took_ms, lease.outcome = said[1], said[3], 'finished'
        finished = finished + (state == 'held' and 1 or 0)
      elseif kind == 'drop' then
        lease.outcome = said[1]
      elseif kind == 'release' then
        lease.outcome = 'released'
      else
        lease.error, lease.trace, lease.charge = said[1], said[2], kind == 'retry' and said[4] == '1'
        lease.failures = lease.failures + (lease.charge and 1 or 0)
        if lease.charge and lease.failures >= (job.attempts or 1) then lease.kind = 'bury' end
        lease.due_ms = lease.kind == 'retry' and tonumber(said[3]) > 0 and now_ms + tonumber(said[3]) or 0
        lease.outcome = lease.kind == 'retry' and 'retried' or 'buried'
      end
      if lease.redo then
        -- As the first copy had it: it may have counted the failure on the wire already.
        local was, due_ms, failures = string.match(run.ending, '^(%a+) (%d+) (%d+)$')
        lease.kind, lease.due_ms, lease.failures, lease.outcome = was or lease.kind, tonumber(due_ms or 0), tonumber(failures or 0), outcome
      else
        state, outcome = 'ok', lease.outcome
      end
      planned[#planned + 1], known[id] = lease, lease.outcome
    end
    reply[2 * at - 1], reply[2 * at] = state, outcome
  end
  if #planned > 0 then waits_ms = tonumber(redis.call('HGET', prefix .. 'stats', 'waits_ms') or 0) end

  local function finish_one(lease)
    if not lease.redo then
      local noted = lease.error and helpers.error_note(lease.run, now_ms, lease.fence, 'failed', lease.error, lease.trace) or {}
      if lease.kind == 'finish' then noted = { 'value', lease.value or '', 'took_ms', lease.took_ms or 0, 'crashes', 0 } end
      redis.call('HSET', lease.run, 'nonce', '', 'ended', lease.token, 'outcome', lease.outcome, 'ended_ms', string.format('%d', now_ms), 'ending',
        string.format('%s %d %d', lease.kind, lease.due_ms or 0, lease.failures), unpack(noted))
    end
    -- As long as late copies may come; and no longer than a foreign client may need to run what goes on.
    local over = lease.kind == 'finish' or lease.kind == 'drop'
    local until_ms = math.max(now_ms, lease.deadline_ms, lease.due_ms or 0) + (over and 20000 or 604800000)
    redis.call('PEXPIREAT', lease.run, string.format('%d', until_ms))
    helpers.foreign_end(prefix, format, lease, now_ms, lease.redo)
    local counter = ({ finish = 'finished', bury = 'buried', drop = lease.outcome })[lease.kind]
    if counter then counters[counter] = (counters[counter] or 0) + 1 end
    if waits_ms > now_ms and lease.kind ~= 'release' and lease.kind ~= 'retry' then helpers.tell_ended(prefix, lease.id) end
    if helpers.events then
      if lease.asked == 'retry' then table.insert(helpers.events, { 'failed', lease.id, lease.job.name, lease.error }) end
      if lease.outcome ~= 'retried' then table.insert(helpers.events, { lease.outcome, lease.id, lease.job.name, lease.error }) end
    end
  end
  for _, lease in ipairs(planned) do
    if lease.kind ~= 'release' then finish_one(lease) end
  end
  -- Each goes to the front: the first of them last.
  for at = #planned, 1, -1 do
    if planned[at].kind == 'release' then finish_one(planned[at]) end
  end
  for counter, ended in pairs(counters) do redis.call('HINCRBY', prefix .. 'stats', counter, ended) end
  return finished == count and count or reply
end
