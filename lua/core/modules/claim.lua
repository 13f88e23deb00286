-- Claims: which classes are open, and the leases that are made of the picked jobs (pick.lua).
-- RARELY bury_job, checked_head, count_leases, expire_job, is_paused, left_by_parents, limit_room, limits_of,
--        rate_back, run_look, run_note, run_write
-- USES children/children: left_by_parents
--      core/envelope: checked_head, envelope_open, envelope_seal
--      core/job: expire_job
--      core/lane: due_member, leave_lane
--      core/lease: bury_job, note_lease
--      core/limit: count_leases, limit_room, rate_back
--      core/pick: pick_jobs
--      core/run: run_look, run_note, run_start, run_write

-- The jobs that an earlier copy of this claim leased and still holds (rule 4). `record` is the record of the
-- incarnation's last claim. Returns kind and jobs, 7 values each; kind is nil if there was no earlier copy.
-- The ids that it buried are added to `corrupt`, and the results of parents to `left` (left_by_parents).
local function claim_known(prefix, active, record, nonce, counter, corrupt, left)
  local words, jobs = {}, {}
  for word in string.gmatch(record or '', '%S+') do words[#words + 1] = word end
  if not words[1] or tonumber(words[1]) < tonumber(counter) then return nil, jobs end
  if words[1] ~= counter then return 'stale', jobs end -- anchor: older-claim-is-stale
  for at = 2, #words, 2 do
    local id = words[at]
    if words[at + 1] == 'corrupt' then corrupt[#corrupt + 1] = id end
    local fence, held_by, claims, failures, crashes, heir, cause = unpack(run_look(prefix .. 'run:' .. id,
      'fence', 'nonce', 'claims', 'failures', 'crashes', 'heir', 'cause'), 1, 7)
    local deadline_ms = redis.call('ZSCORE', active, id)
    local raw = redis.call('GET', prefix .. 'job:' .. id) -- anchor: repeated-claim-returns-each-payload
    if raw and deadline_ms and fence == words[at + 1] and held_by == nonce then
      for _, field in ipairs({ id, tonumber(fence), tonumber(deadline_ms), tonumber(claims),
          tonumber(failures or 0), tonumber(crashes or 0), raw }) do
        jobs[#jobs + 1] = field
      end
      if heir then left[#left + 1] = left_by_parents(prefix, id, raw, cause) end
    end
  end
  return 'repeated', jobs
end

-- Whether the jobs of a class, or the whole queue, are paused now. `paused` is the hash of the pauses: a name
-- of jobs or * -> until_ms (0 = until it is resumed) and length in ms. A class is a name, followed after an @
-- by the target that it requires.
local function is_paused(paused, class, now_ms)
  for _, pause in ipairs(redis.call('HMGET', paused, '*', string.match(class, '^[^@]*'))) do
    local until_ms = pause and tonumber(string.match(pause, '^%d+'))
    if until_ms and (until_ms == 0 or until_ms > now_ms) then return true end
  end
  return false
end

-- The classes that may be claimed now, each with the room that its limit leaves (rule 18). So a claim reads
-- no lanes of a class that is paused or at its limit. Pauses and limits belong to the name, which several
-- classes may share. `some`: false where the queue has neither pauses nor limits nor jobs that may expire.
-- Returns the open classes and those without room, whether any limit is defined, and whether any job may
-- expire.
local function open_classes(prefix, names, now_ms, some)
  local open, closed, meters = {}, {}, {}
  local some_paused, some_limits = some and redis.call('HLEN', prefix .. 'paused') > 0,
    some and redis.call('HLEN', prefix .. 'limits') > 0
  for _, name in ipairs(names) do
    local class = { name = name, ready = prefix .. 'ready:' .. name, room = math.huge, picked = 0,
      passed = false }
    local limit = some_limits and 'n:' .. string.match(name, '^[^@]*')
    local definition = limit and redis.call('HGET', prefix .. 'limits', limit)
    if definition then
      class.limit = limit
      class.definition = definition
      local units, rate
      class.room, class.until_ms, class.ahead, units, rate =
        limit_room(prefix, class.limit, definition, now_ms)
      -- All classes of the name share what is left of the window.
      meters[limit] = meters[limit] or { units = units, rate = rate }
      class.meter = meters[limit]
    end
    if not (some_paused and is_paused(prefix .. 'paused', name, now_ms)) then
      local list = class.room > 0 and open or closed
      list[#list + 1] = class
    end
  end
  return open, closed, some_limits, some and redis.call('EXISTS', prefix .. 'expiring') == 1
end

-- Put the picked jobs into `active`, the first write of a claim. Until a job leaves its lane, only the
-- token in `run` counts. keys, ask: as for claim_jobs
local function write_leases(keys, ask, picked, deadline_ms)
  local entries = {}
  if #picked > 0 then note_lease(keys.sweep, ask.lease_ms, ask.lengths) end
  for at, job in ipairs(picked) do entries[2 * at - 1], entries[2 * at] = deadline_ms, job.id end
  -- anchor: every-picked-job-is-leased
  for at = 1, #entries, PIECE do redis.call('ZADD', keys.active, unpack(entries, at, math.min(at + PIECE - 1, #entries))) end
  if ask.expiring then
    -- A started job never expires, however long it runs and however often it is retried.
    for at, job in ipairs(picked) do entries[at] = due_member(envelope_open(job.raw).sequence, job.id) end
    -- anchor: started-jobs-do-not-expire
    for at = 1, #picked, PIECE do redis.call('ZREM', ask.prefix .. 'expiring', unpack(entries, at, math.min(at + PIECE - 1, #picked))) end
  end
end

-- The names of the limits that a picked job's lease counts against, each behind a space. The lease is added
-- to `counted`, the groups by name of the leases to count.
local function limits_of(job, fence, counted)
  local words = ''
  for _, limit in ipairs({ job.class.limit and job.class or job.limit, job.class.limit and job.limit }) do
    words = words .. ' ' .. limit.limit
    local group = counted[limit.limit] or { limit = limit, ids = {}, fences = {}, costs = {} }
    local count = #group.ids + 1
    group.ids[count], group.fences[count], group.costs[count] = job.id, fence, job.cost
    counted[limit.limit] = group
  end
  return words
end

-- Write the runs of the picked jobs under the nonce, and count their leases against limits. The names of
-- limits are written to `run` before, so whatever ends the lease frees the limit slots. Adds to `jobs`,
-- `left` and `leases` what the claim returns of the jobs, what their parents have left, and its record.
local function write_runs(ask, picked, nonce, deadline_ms, now_ms, jobs, left, leases, events)
  local prefix, first_leases, counted, last, fence = ask.prefix, {}, {}, nil, nil
  for at, job in ipairs(picked) do
    -- Most jobs of a claim have one fence.
    if job.fence ~= last then
      last, fence = job.fence, string.format('%d', job.fence) -- anchor: fence-keeps-every-digit
    end
    local words = (job.class.limit or job.limit) and limits_of(job, fence, counted) or ''
    local seal = envelope_seal(job.raw)
    if job.ran or words ~= '' then
      run_write(job.run_key, 'fence', fence, 'nonce', nonce, 'seal', seal, 'renewal', 0, 'owner', ask.owner,
        'claims', job.claims or 1,
        'failures', job.failures or 0, 'crashes', job.crashes or 0, 'limits', words)
    else
      first_leases[#first_leases + 1], first_leases[#first_leases + 2] = job.run_key,
        run_start(fence, nonce, seal, ask.owner)
    end
    leases[at + 1] = job.id .. ' ' .. fence -- anchor: claim-leaves-the-envelope-whole
    if events and events.keep then
      table.insert(events, { 'claimed', job.id, envelope_open(job.raw).name, ask.owner })
    end
    local slot = 7 * at - 6
    jobs[slot], jobs[slot + 1], jobs[slot + 2] = job.id, job.fence, deadline_ms
    jobs[slot + 3] = job.claims or 1
    -- anchor: each-job-is-claimed-with-its-own-payload
    jobs[slot + 4], jobs[slot + 5], jobs[slot + 6] = job.failures or 0, job.crashes or 0, job.raw
    if job.left then left[#left + 1] = job.left end
  end
  -- anchor: every-first-lease-is-written
  for at = 1, #first_leases, PIECE do redis.call('MSET', unpack(first_leases, at, math.min(at + PIECE - 1, #first_leases))) end
  for _, group in pairs(counted) do count_leases(prefix, group.limit, group, deadline_ms, now_ms) end
end

-- Take the picked jobs out of the lanes that the claim has visited; bury what is unreadable there, and expire
-- what has waited too long. The ids of buried jobs are added to `corrupt`.
local function clear_lanes(prefix, lanes, virtual_time, corrupt, now_ms, events)
  for _, lane in ipairs(lanes) do
    for _, id in ipairs(lane.unread) do
      local spent = lane.spent and lane.spent[id]
      local why = spent and 'fences exhausted at 2^53' or 'corrupt envelope'
      bury_job(prefix, spent and checked_head(prefix .. 'job:' .. id) or {}, id, now_ms, events, why)
      run_note(prefix .. 'run:' .. id, 'error', why)
      corrupt[#corrupt + 1] = id
    end
    for _, id in ipairs(lane.expired) do
      expire_job(prefix, checked_head(prefix .. 'job:' .. id), id, now_ms, virtual_time, {}, events)
    end
    leave_lane(prefix, lane, now_ms)
  end
end

-- Lease up to `ask.most` jobs of the classes under (fence, nonce). Returns kind, jobs (7 values each), the
-- ids buried as corrupt, and the open classes; ids and classes are nil if it read none. The ids include
-- `ask.corrupt`, those that the promotion before it has buried. Then whether any limit is defined, and the
-- results of parents for these jobs (left_by_parents).
-- keys: sweep, active, stats, record
-- ask: prefix, classes, incarnation, counter, most, lease_ms, not_after_ms, owner, crashed_max, lowest,
-- corrupt, virtual_time, last_claim (the value of `record`), lengths (of leases, see lease_lengths), special
-- (false where the queue has neither pauses nor limits nor jobs that may expire)
local function claim_jobs(keys, ask, now_ms, events)
  local nonce, prefix, corrupt = ask.incarnation .. ':' .. ask.counter, ask.prefix, ask.corrupt
  local left = {}
  local known, jobs = claim_known(prefix, keys.active, ask.last_claim, nonce, ask.counter, corrupt, left)
  if known then return known, jobs, corrupt, nil, nil, left end -- anchor: claim-is-recognized-when-repeated
  if now_ms > ask.not_after_ms then return 'void', jobs, corrupt end -- anchor: late-claim-is-void

  local open, closed, limited
  open, closed, limited, ask.expiring = open_classes(prefix, ask.classes, now_ms, ask.special)
  local picked, lanes, virtual_time = pick_jobs(open, limited, keys.active, ask, now_ms)

  local deadline_ms, leases = now_ms + ask.lease_ms, { ask.counter }
  write_leases(keys, ask, picked, deadline_ms)
  write_runs(ask, picked, nonce, deadline_ms, now_ms, jobs, left, leases, events)
  clear_lanes(prefix, lanes, virtual_time, corrupt, now_ms, events)
  if virtual_time > ask.virtual_time then
    redis.call('HSET', keys.stats, 'turn', string.format('%d', virtual_time))
  end
  -- Classes without room rest until their limit has room again.
  for _, class in ipairs(open) do
    if class.room <= 0 then closed[#closed + 1] = class end
  end
  for _, class in ipairs(closed) do
    local _, until_ms, ahead = limit_room(prefix, class.limit, class.definition, now_ms, class.meter.need)
    rate_back(prefix, class.limit, ahead, now_ms)
    if until_ms then redis.call('ZADD', prefix .. 'rest', until_ms, 'w:' .. string.sub(class.limit, 3)) end
  end
  for _, id in ipairs(corrupt) do leases[#leases + 1] = id .. ' corrupt' end
  redis.call('SET', keys.record, table.concat(leases, ' '), 'PXAT',
    math.max(ask.not_after_ms, deadline_ms) + ask.lease_ms)
  return #picked > 0 and 'leased' or 'empty', jobs, corrupt, open, limited, left
end
