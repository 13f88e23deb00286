-- Sweeps: promotions, reaps, leases of lost workers, heartbeats, and the time until the next sweep is needed.

-- The words of a sweep's reply when it has already been carried out, so that another copy of the call repeats them; no words for
-- a copy of an older sweep. Returns nil for a sweep that has moved nothing yet. `record` is what its key holds, or false. Without
-- it, a lost reply would lose the only report of the leases that the sweep took.
local function swept_before(record, counter)
  local words = {}
  for word in string.gmatch(record or '', '%S+') do words[#words + 1] = word end
  if not words[1] or tonumber(words[1]) < tonumber(counter) then return nil end
  if words[1] ~= counter then return {} end
  table.remove(words, 1)
  return words
end

-- What earlier sweeps recorded, for `sweep_clock`; then from when on rests are mended (mend_limits), and from which rank the dead.
-- An error reply where the key is no hash.
local function sweep_state(sweep)
  return redis.pcall('HMGET', sweep, 'max_lease_ms', 'recent_lease_ms', 'forgot_ms', 'last_sweep_ms', 'no_reap_before_ms', 'least_lease_ms',
    'recent_least_ms', 'waits', 'waits_from_ms', 'rests_from_ms', 'dead_from', 'looked_ms', 'look_from')
end

-- How many jobs the next part of a sweep may move: what is left of the limit, and a fifth of it at least, so that a long backlog of
-- one part does not hold the others up.
local function share_left(limit, used)
  return math.max(limit - used, math.ceil(limit / 5))
end

-- Compare the time with the one that earlier sweeps recorded (rules 10 and 11). `kept` is the result of sweep_state, `latest_ms`
-- the latest end of a lease. Returns the longest lease (ms), the time before which nothing may be reaped, and the fields to write,
-- in one HSET before any other write: if the sweep is cut off after it, the next one still knows of the stall.
local function sweep_clock(kept, latest_ms, now_ms, most_ms)
  local lease_ms, recent_ms = tonumber(kept[1] or 0), tonumber(kept[2] or 0)
  local least_ms, recent_least_ms = tonumber(kept[6] or lease_ms), tonumber(kept[7] or 0)
  -- If the clock stepped back, times that lie ahead of it count as now.
  local forgot_ms = math.min(tonumber(kept[3] or now_ms), now_ms)
  local last_ms = math.min(tonumber(kept[4] or now_ms), now_ms)
  -- Every ten seconds: a lease length above the recent ones is dropped once no lease ends later than the recent ones can.
  if recent_ms > 0 and now_ms - forgot_ms >= 10000 then
    if latest_ms <= now_ms + recent_ms then lease_ms = recent_ms end
    if recent_least_ms > 0 then least_ms = recent_least_ms end
    recent_ms, recent_least_ms, forgot_ms = 0, 0, now_ms
  end
  -- No sweep for half of the shortest lease means that the server was stalled, and workers must be able to renew before their
  -- leases are taken. The bound is at least twice the caller's own interval, or a slower sweeper would never reap. After one wait
  -- the next gap starts no second one, or sweeps that always come late would never reap either.
  local gap_ms, half_ms = now_ms - last_ms, math.floor(lease_ms / 2)
  local no_reap_before_ms = math.min(tonumber(kept[5] or 0), now_ms + half_ms) -- anchor: no-reap-time-follows-the-clock
  -- But if sweeps came in time after the wait, a new gap is another stall, and its workers are waited for, once.
  local waits, from_ms = tonumber(kept[8] or 0), math.min(tonumber(kept[9] or 0), now_ms)
  local again = no_reap_before_ms > last_ms and now_ms >= no_reap_before_ms
  local heard = again and (last_ms <= from_ms or waits > 1)
  if not heard and gap_ms > math.max(math.floor(least_ms / 2), 2 * most_ms) then
    -- A lease that a live worker renews has at least two thirds left. So the gap has ended only leases of at most 1.5 times its
    -- length, and half of such a lease, three quarters of the gap, is enough time for the worker to renew.
    no_reap_before_ms = now_ms + math.min(half_ms, math.max(math.floor(least_ms / 2), math.floor(gap_ms * 3 / 4)))
    waits, from_ms = again and waits + 1 or 1, now_ms
  end
  local keep = { 'max_lease_ms', lease_ms, 'recent_lease_ms', recent_ms,
    'least_lease_ms', least_ms, 'recent_least_ms', recent_least_ms, 'forgot_ms', forgot_ms,
    'last_sweep_ms', now_ms, 'no_reap_before_ms', no_reap_before_ms, 'waits', waits, 'waits_from_ms', from_ms }
  -- Rests that began before the clock stepped back would end too late.
  if tonumber(kept[4] or now_ms) > now_ms then
    keep[#keep + 1], keep[#keep + 2] = 'rests_from_ms', now_ms
    kept[10] = now_ms
  end
  return lease_ms, no_reap_before_ms, keep
end

-- Milliseconds until the next lease end, due time or end of a rest, at most `most_ms`: how long a sweeper may sleep (rule 13).
-- While nothing is reaped after a stall (rule 11), an expired lease is checked again when that wait is over, not at once. `also`
-- is another index to read: sweeps, which every worker makes often enough, include the schedules; claims do not. `heads` holds what
-- is known to be the first entry of an index, with its score.
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

-- Move due jobs into their lanes, and bring back lanes and classes whose rest is over: at most `limit` of each. Returns the
-- number of jobs, the wake lists to push, and the ids of jobs that were buried because their envelope is corrupt.
local function promote_due(prefix, turn, now_ms, limit, events)
  local due, rest, promoted, wakes, corrupt = prefix .. 'due', prefix .. 'rest', 0, {}, {}
  -- anchor: delayed-jobs-are-promoted-on-time
  for _, member in ipairs(redis.call('ZRANGE', due, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit)) do
    local id = string.sub(member, 11)
    local job = job_head(prefix .. 'job:' .. id)
    -- A job with a live token (a retry was cut off) is moved as well; the claim that finds its entry drops it.
    if job and job.kind == 'J' and due_member(job.sequence, id) ~= member then
      -- An enqueue that was cut off left this entry: the job with this id was made later and has its own entry, or needs none.
    elseif job and job.kind == 'J' then
      local wake = to_lane(prefix, id, job, turn)
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
      local wake = ready_lane(prefix, name, turn)
      if wake then wakes[wake] = true end
    else
      if name == '*' then wake_classes(prefix, now_ms) else wake_name(prefix, name, now_ms) end
    end
    redis.call('ZREM', rest, member)
  end
  return promoted, wakes, corrupt
end

-- Take one lease away. Returns reaped | buried | corrupt | ended (only its index entry was left), fence, nonce ('-' where a sweep
-- that was cut off has taken it) and crashes; the wake lists to push are added to `wakes`.
local function reap_job(prefix, id, now_ms, turn, wakes, events)
  local run = prefix .. 'run:' .. id
  local job = job_head(prefix .. 'job:' .. id)
  local readable = run_is_readable(run)
  local state = readable and run_read(run, 'fence', 'nonce', 'crashes', 'marked', 'limits', 'owner', 'requeued_ms') or {}
  -- anchor: reaped-lease-frees-its-slot
  if state[5] and state[5] ~= '' then free_slots(prefix, state[5], id, turn, wakes) end
  if not job or job.kind == 'T' then
    -- A finish was cut off after its tombstone: the job has ended, only its lease is left.
    if redis.call('SISMEMBER', prefix .. 'feeding', id) == 1 then
      redis.call('ZADD', prefix .. 'handing', now_ms, (job and '+' or '-') .. id)
    end
    drop_run(prefix, id)
    return { 'ended' }
  end
  local fence, nonce, crashes = state[1] or '0', state[2] or '', tonumber(state[3] or 0)
  local live = nonce ~= ''
  -- A bury or a retry that was cut off has already put the job into `dead` or `due`: it stays there.
  local dead = redis.call('ZSCORE', prefix .. 'dead', id)
  -- The entry in `dead` may also be left over from a requeue that was cut off: the job was claimed since, so the entry is removed.
  if dead and tonumber(dead) < tonumber(state[7] or 0) then
    redis.call('ZREM', prefix .. 'dead', id)
    dead = false
  end
  local placed = dead or job.kind == 'J' and redis.call('ZSCORE', prefix .. 'due', due_member(job.sequence, id))
  -- Rule 12: the first crash is counted without a condition; after it only a lease that was marked as started counts another one.
  if live and (crashes == 0 or state[4] == fence .. ':' .. nonce) then crashes = crashes + 1 end -- anchor: crash-charged-once
  local function lost(why)
    if not live then return { 'error', why } end
    local text = 'the worker ' .. (state[6] or '') .. ' was lost'
    local note = error_note(run, now_ms, fence, 'lost', text, '')
    if why then note[2] = why end
    return note
  end
  local reason = not readable and 'the key of its run cannot be read' or job.kind == 'corrupt' and 'corrupt envelope'
    or crashes >= job.crashes_max and string.format('crashed %d times, %d are allowed', crashes, job.crashes_max - 1) or nil
  if reason and not (placed and not dead) then
    -- The token is revoked before the job is buried, or a late finish could still end a job that is in `dead`. If the script is
    -- cut off in between, the lease is still in `active`, and the next sweep finds the count of crashes.
    run_note(run, 'nonce', '', 'crashes', crashes, 'limits', '', unpack(lost(reason)))
    if not dead then bury_job(prefix, job, id, now_ms, events, reason) end
    return { (job.kind == 'corrupt' or not readable) and 'corrupt' or 'buried', fence, live and nonce or '-', crashes }
  end
  local wake = not placed and to_lane(prefix, id, job, turn)
  if wake then wakes[wake] = true end
  -- anchor: reaped-lease-leaves-its-count
  if live then run_write(run, 'nonce', '', 'crashes', crashes, 'limits', '', unpack(lost())) end
  if live and events then table.insert(events, { 'reaped', id, job.name, state[6] }) end
  return { live and 'reaped' or 'ended', fence, nonce, crashes }
end

-- Take away the leases of some workers, in one page of `active`: those for which `lost` says so, by incarnation and deadline (ms).
-- `reap` takes one lease and returns kind, fence, nonce and crashes. A page ends early with the 50th lease that it takes. `start_ms`
-- and `start_id`: deadline and id of the last lease that the page before has read, nil for the first page. Returns the taken leases,
-- 5 values each, and where the next page starts, nil after the last one.
local function take_leases(prefix, active, start_ms, start_id, limit, lost, reap)
  -- Go on after the last lease that was read; if that has ended or was renewed, from all leases with its score.
  local rank = start_id and redis.call('ZSCORE', active, start_id) == start_ms and redis.call('ZRANK', active, start_id)
  local page
  if rank then
    page = redis.call('ZRANGE', active, rank + 1, rank + limit, 'WITHSCORES')
  else
    page = redis.call('ZRANGE', active, start_ms or '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  end
  local taken, left, at = {}, 50, 1
  while at < #page and left > 0 do
    local id, nonce = page[at], run_look(prefix .. 'run:' .. page[at], 'nonce')[1] or ''
    if lost(string.match(nonce, '^([^:]+):'), tonumber(page[at + 1])) then
      local kind, fence, token, crashes = unpack(reap(id))
      redis.call('ZREM', active, id)
      for _, field in ipairs(kind ~= 'ended' and { kind, id, fence, token, crashes } or {}) do taken[#taken + 1] = field end
      left = left - 1
    end
    at = at + 2
  end
  if at < #page or #page == 2 * limit then return taken, page[at - 1], page[at - 2] end
  return taken
end

-- Take away the leases of workers whose heartbeats have stopped (orphans.lua), in one page of `active`. `reap`: see take_leases.
-- Returns the taken leases, 5 values each, and whether the pass goes on.
-- keys: sweep, workers, active, connections (nil where the format has none)
local function take_orphans(prefix, keys, now_ms, limit, reap)
  local kept = redis.call('HMGET', keys.sweep, 'no_orphans_before_ms', 'orphans_until_ms', 'orphans_from', 'orphans_after', 'beat_ttl_ms',
    'last_beat_ms')
  -- A call that was in flight while the server was stalled arrives before the first heartbeat, which would record the stall (note_beat).
  local stalled = now_ms - tonumber(kept[6] or now_ms) > tonumber(kept[5] or 0) / 2
  -- Workers that have stopped since the pass began are left for the next pass.
  local until_ms = string.format('%d', math.min(tonumber(kept[2] or now_ms), now_ms))
  local gone, shown, some = {}, {}, false
  if not stalled and now_ms >= tonumber(kept[1] or 0) then -- anchor: orphans-are-left-after-a-stall
    for _, incarnation in ipairs(redis.call('ZRANGE', keys.workers, '-inf', '(' .. until_ms, 'BYSCORE', 'LIMIT', 0, 100)) do
      local beat = redis.pcall('GET', prefix .. 'worker:' .. incarnation)
      local ttl_ms, lease_ms = string.match(type(beat) == 'string' and beat or '', '^%d+ (%d+) (%d+)')
      -- A heartbeat record that has expired is older than any lease of its worker.
      lease_ms, ttl_ms = tonumber(lease_ms or 0), tonumber(ttl_ms or 0)
      gone[incarnation], some = { more_ms = lease_ms - ttl_ms, lease_ms = lease_ms }, true
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
  local taken, next_ms, next_id = take_leases(prefix, keys.active, kept[3] or nil, kept[4] or nil, limit, lost, reap)
  for incarnation, alive_ms in pairs(shown) do
    redis.call('ZADD', keys.workers, 'XX', 'GT', alive_ms, incarnation)
    redis.call('PEXPIREAT', prefix .. 'worker:' .. incarnation, alive_ms + gone[incarnation].lease_ms + 60000, 'GT')
  end
  if next_ms then
    redis.call('HSET', keys.sweep, 'orphans_until_ms', until_ms, 'orphans_from', next_ms, 'orphans_after', next_id)
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

-- How late a sweep of the leader may come: a quarter of the caller's own interval, and no less than 100 ms.
local function silent_after(sweep_ms)
  return sweep_ms + math.max(100, math.floor(sweep_ms / 4))
end

-- Whether the leader has not swept in its time, by the interval of a follower: it is gone, stands still, or sweeps more rarely than
-- the follower would. `led_ms` is the time of its last sweep; if the clock stepped back, nobody knows how long ago that was.
local function is_silent(led_ms, sweep_ms, now_ms)
  local ago_ms = now_ms - tonumber(led_ms or 0)
  return ago_ms < 0 or ago_ms >= silent_after(sweep_ms)
end

-- The time (ms) of a follower's turn to look after the leader (rule 13). The followers take turns, one in each sweep interval: who
-- has looked gets the turn after `turn_ms`, the last one that was given out, but at most eight seconds from now. Each has one turn at
-- a time: who beats before it comes (a busy worker does in each interval) keeps it, or nobody would look meanwhile. The turns lie
-- where a sweep of the leader that did not come is late by just so much that it counts as silent.
local function next_turn(led_ms, turn_ms, sweep_ms, now_ms)
  local every_ms = math.max(100, sweep_ms)
  local next_ms = math.min(math.max(tonumber(turn_ms or 0), now_ms) + every_ms, now_ms + 8000)
  local first_ms = tonumber(led_ms) + silent_after(sweep_ms)
  next_ms = first_ms + every_ms * math.floor((next_ms - first_ms) / every_ms + 0.5)
  return next_ms > now_ms and next_ms or next_ms + every_ms
end

-- What a heartbeat reads before it writes: fields of `sweep`, the worker's last heartbeat, the leader. Error replies where a key has
-- another type.
-- keys: sweep, worker, leader
local function beat_state(keys)
  return redis.pcall('HMGET', keys.sweep, 'beat_ttl_ms', 'last_beat_ms', 'no_orphans_before_ms', 'led_ms', 'turn_ms', 'looked_ms'),
    redis.pcall('GET', keys.worker), redis.pcall('GET', keys.leader)
end

-- Record a heartbeat (beat.lua): the list of live workers, the leader, and the time before which no worker is taken for dead.
-- Returns the result, whether this worker is the leader, whether there are workers without heartbeats whose leases have not been
-- swept yet, for a follower the time (ms) until its next turn to look after the leader, else 0, and whether a follower has to look at
-- connections. `kept`, `worker` and `leader` are what beat_state has read.
-- keys: sweep, workers, worker, leader, connections (nil where the format has none), active
-- beat: incarnation, counter, ttl_ms, until_ms, lease_ms, sweep_ms, about, others, connection
local function note_beat(keys, beat, now_ms, kept, worker, leads)
  local quiet_ms, turn_ms = tonumber(kept[3] or 0), 0
  local last, mine_ms = tonumber(string.match(worker or '', '^%d+') or -1), tonumber(string.match(worker or '', '^%d+ %d+ %d+ (%d+)') or 0)
  -- Its turn has not come yet. If the clock stepped back, it lies further ahead than a turn is given out.
  local waits = leads and leads ~= beat.incarnation and mine_ms > now_ms and mine_ms < now_ms + 8000 + math.max(100, beat.sweep_ms)
  if waits then turn_ms = mine_ms - now_ms end
  local function reply(result)
    -- anchor: beats-wait-after-a-stall
    local orphaned = now_ms >= quiet_ms and redis.call('ZCOUNT', keys.workers, '-inf', '(' .. string.format('%d', now_ms)) > 0
    local late = result == 'ok' and keys.connections and leads ~= beat.incarnation and looks_are_late(beat, kept[6], keys.active, now_ms)
    return result, leads == beat.incarnation, orphaned, turn_ms, late
  end
  -- anchor: late-beat-is-ignored
  if last >= tonumber(beat.counter) then return reply(beat.until_ms > 0 and 'repeated' or 'left') end
  -- The heartbeat had expired when it arrived. It would list a worker that may be long gone, for ever if no worker is left to
  -- sweep. Nor does it show that the server was not stalled.
  if beat.until_ms > 0 and beat.until_ms <= now_ms then return reply('repeated') end -- anchor: beat-that-ran-out-lists-nobody
  -- Before the counter: if the script is cut off in between, the next copy writes the connection again.
  if keys.connections then note_connection(keys.connections, beat) end
  if beat.until_ms == 0 then
    redis.call('ZREM', keys.workers, beat.incarnation)
    if leads == beat.incarnation then redis.call('DEL', keys.leader) end
    -- A late copy of an earlier heartbeat finds this counter and is ignored.
    redis.call('SET', keys.worker, beat.counter, 'PXAT', now_ms + beat.ttl_ms + 30000)
    leads = false
    return reply('left')
  end

  local longest_ms = math.max(tonumber(kept[1] or 0), beat.ttl_ms)
  -- No heartbeat for half of the time for which one counts: the server was stalled or there was no worker, and live workers must
  -- be able to send theirs before they are taken for dead (rule 11). If the clock stepped back, times that lie ahead of it count as now (rule 10).
  local last_ms = math.min(tonumber(kept[2] or now_ms), now_ms)
  quiet_ms = math.min(quiet_ms, now_ms + longest_ms)
  if now_ms - last_ms > longest_ms / 2 then quiet_ms = now_ms + math.floor(longest_ms / 2) end
  local keep = { 'beat_ttl_ms', longest_ms, 'last_beat_ms', now_ms, 'no_orphans_before_ms', quiet_ms }
  if leads ~= beat.incarnation then
    if is_silent(kept[4], beat.sweep_ms, now_ms) then leads = false end -- anchor: silent-leader-is-succeeded
    -- Who takes the lead counts as having swept, which it does next: so nobody else takes it meanwhile.
    local at_ms = leads and (waits and mine_ms or next_turn(kept[4], kept[5], beat.sweep_ms, now_ms)) or now_ms
    if not (leads and waits) then keep[#keep + 1], keep[#keep + 2] = leads and 'turn_ms' or 'led_ms', at_ms end
    turn_ms = at_ms - now_ms
  else
    turn_ms = 0
  end
  -- A worker whose time was set before the clock stepped back, and which has stopped since, must not count as alive until the
  -- clock has caught up (rule 10).
  local latest_ms = string.format('%d', now_ms + longest_ms)
  -- anchor: stopped-members-are-removed
  for _, other in ipairs(redis.call('ZRANGE', keys.workers, '(' .. latest_ms, '+inf', 'BYSCORE', 'LIMIT', 0, 100)) do
    redis.call('ZADD', keys.workers, 'XX', latest_ms, other)
  end
  redis.call('HSET', keys.sweep, unpack(keep))
  local until_ms = math.min(beat.until_ms, now_ms + beat.ttl_ms)
  redis.call('ZADD', keys.workers, until_ms, beat.incarnation)
  for _, other in ipairs(beat.others) do redis.call('ZADD', keys.workers, until_ms, other) end
  if not leads or leads == beat.incarnation then
    redis.call('SET', keys.leader, beat.incarnation, 'PXAT', until_ms)
    leads = beat.incarnation
  end
  -- The record outlives the worker's leases, because a sweep needs to know how long those are.
  local words = { beat.counter, beat.ttl_ms, beat.lease_ms, turn_ms > 0 and string.format('%d', now_ms + turn_ms) or '0', beat.about }
  redis.call('SET', keys.worker, table.concat(words, ' '), 'PXAT', until_ms + tonumber(beat.lease_ms) + 60000)
  return reply('ok')
end

-- Remove entries of `dead` whose job has ended or is gone, and their `run`: a discard that was cut off has left them. Each sweep
-- checks 100 entries, in turn, from the rank `from` on, and records the next one as `dead_from`.
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
      redis.call('ZREM', dead, id)
    end
  end
  if #page < 100 then stay = 0 end
  if stay ~= from then redis.call('HSET', sweep, 'dead_from', stay) end
end
