-- Take one lease away. Returns reaped | buried | corrupt | ended (only its index entry was left), fence, nonce ('-' where a sweep
-- that was cut off has taken it) and crashes; the wake lists that gain work are added to `wakes`.
-- helpers: envelope_open, due_member, to_lane, lane_score, bury_job, free_unique, free_slots, ready_lane, error_note, error_ttl,
--   tell_ended, drop_run
local function reap_job(prefix, id, now_ms, turn, wakes, helpers)
  local run = prefix .. 'run:' .. id
  local job = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. id, 0, 700))
  local state = redis.call('HMGET', run, 'fence', 'nonce', 'crashes', 'marked', 'limits', 'owner', 'requeued_ms')
  -- anchor: reaped-lease-frees-its-slot
  if state[5] and state[5] ~= '' then helpers.free_slots(prefix, state[5], id, turn, wakes, helpers) end
  if not job or job.kind == 'T' then
    -- A finish that was cut off after its tombstone: the job has ended, only its lease is left.
    if redis.call('SISMEMBER', prefix .. 'feeding', id) == 1 then
      redis.call('ZADD', prefix .. 'handing', now_ms, (job and '+' or '-') .. id)
    end
    helpers.drop_run(prefix, id, helpers)
    return { 'ended' }
  end
  local fence, nonce, crashes = state[1] or '0', state[2] or '', tonumber(state[3] or 0)
  local live = nonce ~= ''
  -- A bury or a retry that was cut off has already put the job among the dead or the due ones: it stays there.
  local dead = redis.call('ZSCORE', prefix .. 'dead', id)
  -- A requeue that was cut off has left it there as well: it runs again since, so that entry says nothing.
  if dead and tonumber(dead) < tonumber(state[7] or 0) then
    redis.call('ZREM', prefix .. 'dead', id)
    dead = false
  end
  local placed = dead or job.kind == 'J' and redis.call('ZSCORE', prefix .. 'due', helpers.due_member(job.sequence, id))
  -- Rule 12: the first crash is counted and free; after it only a lease that was marked as started is charged.
  if live and (crashes == 0 or state[4] == fence .. ':' .. nonce) then crashes = crashes + 1 end -- anchor: crash-charged-once
  local function lost(why)
    if not live then return { 'error', why } end
    local text = 'the worker ' .. (state[6] or '') .. ' was lost'
    local note = helpers.error_note(run, now_ms, fence, 'lost', text, '')
    if why then note[2] = why end
    return note
  end
  local reason = job.kind == 'corrupt' and 'corrupt envelope'
    or crashes >= job.crashes_max and string.format('crashed %d times, %d are allowed', crashes, job.crashes_max - 1) or nil
  if reason and not (placed and not dead) then
    -- The token dies before the job does, or a late finish could still end a job that is among the dead. Cut off in between,
    -- the lease is still in `active`, and the next sweep finds the count of crashes.
    redis.call('HSET', run, 'nonce', '', 'crashes', crashes, 'limits', '', unpack(lost(reason)))
    if not dead then helpers.bury_job(prefix, job, id, now_ms, helpers, reason) end
    return { job.kind == 'corrupt' and 'corrupt' or 'buried', fence, live and nonce or '-', crashes }
  end
  local wake = not placed and helpers.to_lane(prefix, id, job, turn, helpers.lane_score)
  if wake then wakes[wake] = true end
  if live then redis.call('HSET', run, 'nonce', '', 'crashes', crashes, 'limits', '', unpack(lost())) end
  if live and helpers.events then table.insert(helpers.events, { 'reaped', id, job.name, state[6] }) end
  return { live and 'reaped' or 'ended', fence, nonce, crashes }
end
