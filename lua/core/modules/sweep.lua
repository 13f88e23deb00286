-- Sweeps: promotion, reaping, leases of lost workers, and the time until the next sweep.
-- USES children/children: leave_dead
--      core/call: fields_of
--      core/envelope: job_head
--      core/lane: due_member, ready_lane, to_lane
--      core/lease: bury_job, drop_run, error_note
--      core/limit: free_slots
--      core/run: run_is_readable, run_look, run_note, run_read, run_write
--      core/wake: wake_classes, wake_name

-- The recorded reply of a sweep that was carried out before, as words, for another copy of the call. An older
-- sweep gets no words. Nil for a sweep that has moved nothing yet. `record` is the value of its key, or
-- false. The record exists because a lost reply would lose the only report of the leases that the sweep took.
local function swept_before(record, counter)
  local words = {}
  for word in string.gmatch(record or '', '%S+') do words[#words + 1] = word end
  if not words[1] or tonumber(words[1]) < tonumber(counter) then return nil end
  if words[1] ~= counter then return {} end
  table.remove(words, 1)
  return words
end

-- The state that earlier sweeps and heartbeats recorded, by the names of its fields: lease lengths and stalls
-- (sweep_clock), where the repairs go on (mend_limits, mend_dead), the leader election (note_beat), and the
-- checks of control connections. An error reply if the key is no hash.
local function sweep_state(sweep)
  return fields_of(sweep, { 'max_lease_ms', 'recent_lease_ms', 'forgot_ms', 'last_sweep_ms',
    'no_reap_before_ms', 'least_lease_ms',
    'recent_least_ms', 'waits', 'waits_from_ms', 'rests_from_ms', 'dead_from', 'looked_ms', 'look_from' })
end

-- How many jobs the next step of a sweep may move: the rest of the limit, but at least a fifth of it. So a
-- long backlog of one step does not block the others.
local function share_left(limit, used)
  return math.max(limit - used, math.ceil(limit / 5))
end

-- Compare the clock with the time of earlier sweeps (rules 10 and 11). `state` is the result of sweep_state,
-- `latest_ms` the latest end of a lease. Returns the longest lease (ms), the time before which nothing may be
-- reaped, and the fields to write. The caller writes them in one HSET before anything else, because a sweep
-- that is cut off must leave the stall on record.
local function sweep_clock(state, latest_ms, now_ms, most_ms)
  local lease_ms, recent_ms = tonumber(state.max_lease_ms or 0), tonumber(state.recent_lease_ms or 0)
  local least_ms, recent_least_ms = tonumber(state.least_lease_ms or lease_ms),
    tonumber(state.recent_least_ms or 0)
  -- If the clock stepped back, times that lie ahead of it count as now.
  local forgot_ms = math.min(tonumber(state.forgot_ms or now_ms), now_ms)
  local last_ms = math.min(tonumber(state.last_sweep_ms or now_ms), now_ms)
  -- Every ten seconds a lease length above the recent ones is dropped, once no lease ends later than a recent
  -- one can.
  if recent_ms > 0 and now_ms - forgot_ms >= 10000 then
    if latest_ms <= now_ms + recent_ms then lease_ms = recent_ms end
    if recent_least_ms > 0 then least_ms = recent_least_ms end
    recent_ms, recent_least_ms, forgot_ms = 0, 0, now_ms
  end
  -- No sweep for half of the shortest lease means a stall: workers must be able to renew before their leases
  -- are reaped. The bound is at least twice the caller's own interval, or a slower sweeper would never reap.
  -- After one wait the next gap starts no second one, or sweeps that always come late would never reap
  -- either.
  local gap_ms, half_ms = now_ms - last_ms, math.floor(lease_ms / 2)
  -- anchor: no-reap-time-follows-the-clock
  local no_reap_before_ms = math.min(tonumber(state.no_reap_before_ms or 0), now_ms + half_ms)
  -- But if sweeps came in time after the wait, a new gap is another stall, and workers get one more wait.
  local waits, from_ms = tonumber(state.waits or 0), math.min(tonumber(state.waits_from_ms or 0), now_ms)
  local again = no_reap_before_ms > last_ms and now_ms >= no_reap_before_ms
  local waited = again and (last_ms <= from_ms or waits > 1)
  if not waited and gap_ms > math.max(math.floor(least_ms / 2), 2 * most_ms) then
    -- A live worker renews while two thirds of its lease are left. So the gap has ended only leases of at
    -- most 1.5 times its length. Half of such a lease, three quarters of the gap, is enough time to renew.
    no_reap_before_ms = now_ms + math.min(half_ms,
      math.max(math.floor(least_ms / 2), math.floor(gap_ms * 3 / 4)))
    waits, from_ms = again and waits + 1 or 1, now_ms
  end
  local keep = { 'max_lease_ms', lease_ms, 'recent_lease_ms', recent_ms,
    'least_lease_ms', least_ms, 'recent_least_ms', recent_least_ms, 'forgot_ms', forgot_ms,
    'last_sweep_ms', now_ms, 'no_reap_before_ms', no_reap_before_ms, 'waits', waits, 'waits_from_ms',
    from_ms }
  -- Rests that began before the clock stepped back would end too late.
  if tonumber(state.last_sweep_ms or now_ms) > now_ms then
    keep[#keep + 1], keep[#keep + 2] = 'rests_from_ms', now_ms
    state.rests_from_ms = now_ms
  end
  return lease_ms, no_reap_before_ms, keep
end

-- How long a sweeper may sleep (rule 13): milliseconds until the next lease end, due time or end of a rest,
-- at most `most_ms`. During the wait after a stall (rule 11) an expired lease is checked again when the wait
-- is over, not at once. `also` is one more index to read: sweeps include the schedules, claims need not,
-- because every worker sweeps often enough. `heads` holds known first entries of indexes, with their scores.
local function next_sweep_ms(prefix, now_ms, most_ms, heads, also)
  local soonest = now_ms + most_ms
  for _, index in ipairs({ 'active', 'due', 'rest', also }) do
    local head = heads[index] or redis.call('ZRANGE', prefix .. index, 0, 0, 'WITHSCORES')
    local at_ms = tonumber(head[2] or soonest)
    if index == 'active' and at_ms <= now_ms then
      at_ms = math.max(at_ms, tonumber(redis.call('HGET', prefix .. 'sweep', 'no_reap_before_ms') or 0))
    end
    soonest = math.min(soonest, at_ms)
  end
  return math.max(0, soonest - now_ms) -- anchor: sweep-sleeps-until-the-next-due-time
end

-- Promote due jobs into their lanes, and bring back lanes and classes whose rest is over: at most `limit` of
-- each. Returns the number of jobs, the wake lists to push, and the ids of jobs that were buried because
-- their envelope is corrupt.
local function promote_due(prefix, virtual_time, now_ms, limit, events)
  local due, rest, promoted, wakes, corrupt = prefix .. 'due', prefix .. 'rest', 0, {}, {}
  -- anchor: delayed-jobs-are-promoted-on-time
  for _, member in ipairs(redis.call('ZRANGE', due, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit)) do
    local id = string.sub(member, 11)
    local job = job_head(prefix .. 'job:' .. id)
    -- A job with a live token (a retry was cut off) is moved as well; the claim that finds its entry drops
    -- it.
    if job and job.kind == 'J' and due_member(job.sequence, id) ~= member then
      -- Left over from an enqueue that was cut off: the job with this id was made later and has its own
      -- entry, or needs none.
    elseif job and job.kind == 'J' then
      local wake = to_lane(prefix, id, job, virtual_time)
      if wake then wakes[wake] = true end
      promoted = promoted + 1
      if events then table.insert(events, { 'promoted', id, job.name }) end
    elseif job and job.kind == 'corrupt' then
      bury_job(prefix, {}, id, now_ms, events, 'corrupt envelope')
      run_note(prefix .. 'run:' .. id, 'error', 'corrupt envelope')
      corrupt[#corrupt + 1] = id
    elseif not redis.call('ZSCORE', prefix .. 'active', id) then
      -- Left over from a cancel that was cut off.
      drop_run(prefix, id)
    end
    redis.call('ZREM', due, member)
  end
  -- anchor: resting-lanes-return-on-time
  for _, member in ipairs(redis.call('ZRANGE', rest, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit)) do
    local name = string.sub(member, 3)
    if string.sub(member, 1, 2) == 'l:' then
      local wake = ready_lane(prefix, name, virtual_time)
      if wake then wakes[wake] = true end
    else
      if name == '*' then wake_classes(prefix, now_ms) else wake_name(prefix, name, now_ms) end
    end
    redis.call('ZREM', rest, member)
  end
  return promoted, wakes, corrupt
end

-- Reap one lease. Returns reaped | buried | corrupt | ended (only the index entry was left), fence, nonce and
-- crashes. The nonce is '-' if an earlier sweep, which was cut off, has revoked it. The wake lists to push
-- are added to `wakes`.
local function reap_job(prefix, id, now_ms, virtual_time, wakes, events)
  local run = prefix .. 'run:' .. id
  local job = job_head(prefix .. 'job:' .. id)
  local readable = run_is_readable(run)
  local fence, nonce, crashes, marked, limits, owner, requeued_ms = unpack(readable and run_read(run, 'fence',
    'nonce', 'crashes', 'marked', 'limits', 'owner', 'requeued_ms') or {}, 1, 7)
  -- anchor: reaped-lease-frees-its-slot
  if limits and limits ~= '' then free_slots(prefix, limits, id, virtual_time, wakes) end
  if not job or job.kind == 'T' then
    -- A finish was cut off after its tombstone: the job has ended, and only its lease is left.
    if redis.call('SISMEMBER', prefix .. 'feeding', id) == 1 then
      redis.call('ZADD', prefix .. 'handing', now_ms, (job and '+' or '-') .. id)
    end
    drop_run(prefix, id)
    return { 'ended' }
  end
  fence, nonce, crashes = fence or '0', nonce or '', tonumber(crashes or 0)
  local live = nonce ~= ''
  -- If a bury or a retry was cut off after it had put the job into `dead` or `due`, the job stays there.
  local dead = redis.call('ZSCORE', prefix .. 'dead', id)
  -- The entry in `dead` may also be left over from a requeue that was cut off. The job was claimed since, so
  -- the entry is removed.
  if dead and tonumber(dead) < tonumber(requeued_ms or 0) then
    leave_dead(prefix, id)
    dead = false
  end
  local placed = dead or job.kind == 'J' and redis.call('ZSCORE', prefix .. 'due',
    due_member(job.sequence, id))
  -- Rule 12: the first crash is counted without a condition; after it only a lease that was marked as started
  -- counts another one.
  -- anchor: crash-charged-once
  if live and (crashes == 0 or marked == fence .. ':' .. nonce) then crashes = crashes + 1 end
  local function lost(why)
    if not live then return { 'error', why } end
    local text = 'the worker ' .. (owner or '') .. ' was lost'
    local note = error_note(run, now_ms, fence, 'lost', text, '')
    if why then note[2] = why end
    return note
  end
  local reason = not readable and 'the key of its run cannot be read'
    or job.kind == 'corrupt' and 'corrupt envelope'
    or crashes >= job.crashes_max and string.format('crashed %d times, %d are allowed', crashes,
      job.crashes_max - 1) or nil
  if reason and not (placed and not dead) then
    -- The token is revoked before the job is buried, or a late finish could still end a job that is in
    -- `dead`. If the script is cut off in between, the lease is still in `active`, and the next sweep finds
    -- the count of crashes.
    run_note(run, 'nonce', '', 'crashes', crashes, 'limits', '', unpack(lost(reason)))
    if not dead then bury_job(prefix, job, id, now_ms, events, reason) end
    return { (job.kind == 'corrupt' or not readable) and 'corrupt' or 'buried', fence, live and nonce or '-',
      crashes }
  end
  local wake = not placed and to_lane(prefix, id, job, virtual_time)
  if wake then wakes[wake] = true end
  -- anchor: reaped-lease-leaves-its-count
  if live then run_write(run, 'nonce', '', 'crashes', crashes, 'limits', '', unpack(lost())) end
  if live and events then table.insert(events, { 'reaped', id, job.name, owner }) end
  return { live and 'reaped' or 'ended', fence, nonce, crashes }
end

-- Reap the leases of lost workers in one page of `active`. `lost` tells by incarnation and deadline (ms)
-- whether a lease belongs to one. `reap` takes one lease and returns kind, fence, nonce and crashes. A page
-- ends early with the 50th lease that it reaps. `start_ms` and `start_id` are deadline and id of the last
-- lease of the page before, nil for the first page. Returns the reaped leases, 5 values each, and where the
-- next page starts, nil after the last one.
local function reap_leases(prefix, active, start_ms, start_id, limit, lost, reap)
  -- Continue after the last lease that was read. If that one has ended or was renewed, continue with all
  -- leases of its score.
  local rank = start_id and redis.call('ZSCORE', active, start_id) == start_ms
    and redis.call('ZRANK', active, start_id)
  local page
  if rank then
    page = redis.call('ZRANGE', active, rank + 1, rank + limit, 'WITHSCORES')
  else
    page = redis.call('ZRANGE', active, start_ms or '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, limit,
      'WITHSCORES')
  end
  local taken, left, at = {}, 50, 1
  while at < #page and left > 0 do
    local id, nonce = page[at], run_look(prefix .. 'run:' .. page[at], 'nonce')[1] or ''
    if lost(string.match(nonce, '^([^:]+):'), tonumber(page[at + 1])) then
      local kind, fence, token, crashes = unpack(reap(id))
      redis.call('ZREM', active, id)
      for _, field in ipairs(kind ~= 'ended' and { kind, id, fence, token, crashes } or {}) do
        taken[#taken + 1] = field
      end
      left = left - 1
    end
    at = at + 2
  end
  if at < #page or #page == 2 * limit then return taken, page[at - 1], page[at - 2] end
  return taken
end

-- Reap the leases of workers whose heartbeats have stopped (orphans.lua), in one page of `active`. `reap`:
-- see reap_leases. Returns the reaped leases, 5 values each, and whether the pass goes on.
-- keys: sweep, workers, active, connections (nil where the format has none)
local function reap_orphans(prefix, keys, now_ms, limit, reap)
  local quiet_ms, pass_ms, from_ms, after, ttl_ms, last_ms =
    unpack(redis.call('HMGET', keys.sweep, 'no_orphans_before_ms',
    'orphans_until_ms', 'orphans_from', 'orphans_after', 'beat_ttl_ms', 'last_beat_ms'))
  -- A call that was in flight during a stall arrives before the first heartbeat, which would record the stall
  -- (note_beat).
  local stalled = now_ms - tonumber(last_ms or now_ms) > tonumber(ttl_ms or 0) / 2
  -- Workers that have stopped since the pass began are left for the next pass.
  local until_ms = string.format('%d', math.min(tonumber(pass_ms or now_ms), now_ms))
  local gone, shown, some = {}, {}, false
  if not stalled and now_ms >= tonumber(quiet_ms or 0) then -- anchor: orphans-are-left-after-a-stall
    for _, incarnation in ipairs(redis.call('ZRANGE', keys.workers, '-inf', '(' .. until_ms, 'BYSCORE',
        'LIMIT', 0, 100)) do
      local beat = redis.pcall('GET', prefix .. 'worker:' .. incarnation)
      local beat_ttl_ms, lease_ms = string.match(type(beat) == 'string' and beat or '', '^%d+ (%d+) (%d+)')
      -- A heartbeat record that has expired is older than any lease of its worker.
      lease_ms, beat_ttl_ms = tonumber(lease_ms or 0), tonumber(beat_ttl_ms or 0)
      gone[incarnation], some = { more_ms = lease_ms - beat_ttl_ms, lease_ms = lease_ms }, true
    end
  end
  if not some then return {}, false end
  local function lost(incarnation, deadline_ms)
    local worker = gone[incarnation]
    -- The last claim or renewal was one lease length before this deadline.
    if worker and deadline_ms >= now_ms + worker.more_ms then -- anchor: renewal-shows-life
      shown[incarnation] = math.max(shown[incarnation] or 0, deadline_ms - worker.more_ms)
      return false
    end
    return worker
  end
  local taken, next_ms, next_id = reap_leases(prefix, keys.active, from_ms or nil, after or nil, limit, lost,
    reap)
  for incarnation, alive_ms in pairs(shown) do
    redis.call('ZADD', keys.workers, 'XX', 'GT', alive_ms, incarnation)
    redis.call('PEXPIREAT', prefix .. 'worker:' .. incarnation, alive_ms + gone[incarnation].lease_ms + 60000,
      'GT')
  end
  if next_ms then
    redis.call('HSET', keys.sweep, 'orphans_until_ms', until_ms, 'orphans_from', next_ms, 'orphans_after',
      next_id)
  else
    redis.call('HDEL', keys.sweep, 'orphans_until_ms', 'orphans_from', 'orphans_after')
    for incarnation in pairs(gone) do
      if tonumber(redis.call('ZSCORE', keys.workers, incarnation)) < tonumber(until_ms) then
        redis.call('ZREM', keys.workers, incarnation)
        if keys.connections then redis.call('HDEL', keys.connections, incarnation) end
      end
    end
  end
  return taken, next_ms ~= nil
end

-- Remove entries of `dead` whose job has ended or is gone, and their `run`: leftovers of discards that were
-- cut off. Each sweep checks 100 entries from the rank `from` on, and records the next rank as `dead_from`.
local function mend_dead(prefix, from)
  local dead, sweep = prefix .. 'dead', prefix .. 'sweep'
  local page = redis.call('ZRANGE', dead, from, from + 99)
  local stay = from
  for _, id in ipairs(page) do
    -- A key of another type in place of a job is reported by the scripts that need the job.
    local first = redis.pcall('GETRANGE', prefix .. 'job:' .. id, 0, 0)
    if first ~= '' and first ~= '\160' then
      stay = stay + 1
    else
      if not redis.call('ZSCORE', prefix .. 'active', id) then drop_run(prefix, id) end
      leave_dead(prefix, id)
    end
  end
  if #page < 100 then stay = 0 end
  if stay ~= from then redis.call('HSET', sweep, 'dead_from', stay) end
end
