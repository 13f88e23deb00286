-- Claims: which classes are open, which jobs are next, and the leases that are made of them.
-- USES children/children: left_by_parents
--      core/envelope: envelope_cost, envelope_kind, envelope_open, envelope_seal, look_at
--      core/job: expire_job, never_started
--      core/lane: due_member, leave_lane
--      core/lease: bury_job, note_lease
--      core/limit: count_leases, limit_room, rate_back
--      core/run: run_look, run_note, run_open, run_start, run_write

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
    local run = run_look(prefix .. 'run:' .. id, 'fence', 'nonce', 'claims', 'failures', 'crashes', 'heir',
      'cause')
    local deadline_ms = redis.call('ZSCORE', active, id)
    local raw = redis.call('GET', prefix .. 'job:' .. id) -- anchor: repeated-claim-returns-each-payload
    if raw and deadline_ms and run[1] == words[at + 1] and run[2] == nonce then
      for _, field in ipairs({ id, tonumber(run[1]), tonumber(deadline_ms), tonumber(run[3]),
          tonumber(run[4] or 0), tonumber(run[5] or 0), raw }) do
        jobs[#jobs + 1] = field
      end
      if run[6] then left[#left + 1] = left_by_parents(prefix, id, raw, run[7]) end
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
-- classes may share. Returns the open classes and those without room, whether any limit is defined, and
-- whether any job may expire.
local function open_classes(prefix, names, now_ms)
  local open, closed, meters = {}, {}, {}
  -- One read is enough for most queues, which have none of these.
  local some = redis.call('EXISTS', prefix .. 'paused', prefix .. 'limits', prefix .. 'expiring') > 0
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

-- When the jobs of one page of a lane expire (ms), false for one that does not. `raws`: their envelopes.
local function expiries_of(prefix, ids, raws)
  local members = {}
  for at, id in ipairs(ids) do
    local job = envelope_open(raws[at] or nil)
    members[at] = job and job.sequence and due_member(job.sequence, id) or id
  end
  return redis.call('ZMSCORE', prefix .. 'expiring', unpack(members))
end

-- Choose the jobs that a claim will lease; reads only (rules 17 to 19). Ready lanes are visited in their
-- order over all open classes: the best band first, then virtual time. A visit ends after 10 jobs, or if the
-- lane's next job has a lower band than the next ready lane. A lane that still has jobs goes behind the
-- others of its band. A lane that is alone is emptied in one visit.
-- With `least` and `most` only jobs of those priorities count, in the first 1,000 ready lanes of each class.
-- Expired jobs are set apart, up to 200; then the claim ends, and the next one goes on (rule 38).
-- Returns jobs, lanes and the last virtual time. A lane has its picked jobs, its entries without a runnable
-- job, its virtual time, and the limit that blocks it.
-- ask: prefix, limit, crashed_max, least, most, virtual_time, expiring (whether any job may expire); limited:
-- whether any limit is defined
local function pick_jobs(classes, limited, active, ask, now_ms)
  local band_size, picked, visited, heads, keys, bytes, crashed, full, overdue = BAND, {}, {}, {}, {}, 0, 0,
    false, 0
  local virtual_time, job_prefix, run_prefix, none = ask.virtual_time, ask.prefix .. 'job:',
    ask.prefix .. 'run:', {}
  -- The range of scores that jobs of these priorities have in a lane.
  local first, last = ask.least and (10 - ask.most) * band_size,
    ask.least and (11 - ask.least) * band_size - 1
  local function entries(head, size, ...)
    -- anchor: lane-is-served-from-its-head
    if not first then return redis.call('ZRANGE', head.zset, head.offset, head.offset + size - 1, ...) end
    return redis.call('ZRANGE', head.zset, first, last, 'BYSCORE', 'LIMIT', head.offset, size, ...)
  end
  local function read_page(class)
    local page = redis.call('ZRANGE', class.ready, class.seen, class.seen + 15, 'WITHSCORES')
    for at = 1, #page, 2 do
      local name, score = page[at], tonumber(page[at + 1])
      local head = { name = name, score = score, class = class, key = string.sub(name, #class.name + 2),
        virtual_time = score % band_size, zset = ask.prefix .. 'lane:' .. name, offset = 0, jobs = {},
        skipped = {}, unread = {}, expired = {} }
      -- A lane's score comes from its best job, which may have a priority above the range.
      local job = first and (score <= last and entries(head, 1, 'WITHSCORES') or {})
      if job and job[1] then
        head.score = math.floor(tonumber(job[2]) / band_size) * band_size + head.virtual_time
      end
      if not job or job[1] then heads[#heads + 1] = head end
    end
    class.seen = class.seen + #page / 2
    class.tail = #page == 32 and not (first and class.seen >= 1000) and tonumber(page[32]) or nil
  end
  -- The index of the best head whose class has room left. Lanes that are not read yet come after the last one
  -- that was read.
  local function best_head()
    local best
    repeat
      best = nil
      for at, head in ipairs(heads) do
        if head.class.room > 0 and (not best or head.score < heads[best].score) then best = at end
      end
      local read = false
      for _, class in ipairs(classes) do
        if class.tail and class.room > 0 and (not best or heads[best].score > class.tail) then
          read_page(class)
          read = true
        end
      end
    until not read
    return best
  end
  local function limit_of(head)
    local limit = 'k:' .. head.key
    if keys[limit] == nil then
      local own = redis.call('HMGET', ask.prefix .. 'limits', limit, 'k:*')
      local definition = own[1] or own[2]
      keys[limit] = false
      if definition then
        local room, until_ms, ahead, units, rate = limit_room(ask.prefix, limit, definition, now_ms)
        keys[limit] = { limit = limit, definition = definition, room = room, until_ms = until_ms,
          ahead = ahead,
          units = units, rate = rate }
      end
    end
    return keys[limit]
  end
  -- Charge the cost of a job to the rates of its limits. Returns false if they have too few units left. Then
  -- the jobs behind it wait as well, or it would wait for ever. `need` records how many units it waits for.
  local function spend(head, cost)
    local meter, limit = head.class.meter, head.limit
    local by_name, by_key = meter and meter.rate and math.min(cost, meter.rate),
      limit and limit.rate and math.min(cost, limit.rate)
    if by_name and by_name > meter.units then
      meter.need = by_name
      for _, other in ipairs(classes) do
        if other.meter == meter then other.room = 0 end
      end
      return false
    end
    if by_key and by_key > limit.units then
      limit.need, limit.room = by_key, 0
      return false
    end
    if by_name then meter.units = meter.units - by_name end
    if by_key then limit.units = limit.units - by_key end
    return true
  end
  -- Pick up to `most` jobs of a lane, none of a lower band than `least_band`. Entries without a runnable job
  -- are bounded by 99. A skipped job must not hide those behind it, so each allows one more entry, up to
  -- 2,000 (some 3 ms). Envelopes are read 16 at a time. Sets `head.exhausted` after the lane's last entry.
  local function visit(head, most, least_band)
    local taken, looked, bound, metered = 0, 0, most + 99, head.class.meter or head.limit
    while taken < most and looked < bound do
      local count = math.min(16, most - taken)
      local page, job_keys, run_keys = entries(head, count), {}, {}
      local last = #page < count
      if not page[1] then
        head.exhausted = true
        break
      end
      for at, id in ipairs(page) do job_keys[at], run_keys[at] = job_prefix .. id, run_prefix .. id end
      local raws = redis.call('MGET', unpack(job_keys))
      -- This one read is enough for jobs that were never claimed, as most are. A key of another type reads as
      -- nil.
      local some = redis.call('EXISTS', unpack(run_keys)) > 0
      local runs = some and redis.call('MGET', unpack(run_keys)) or none
      local expiries = ask.expiring and expiries_of(ask.prefix, page, raws) or none
      for at, id in ipairs(page) do
        -- A key of another type reads as nil above. Its job is buried as corrupt, and blocks no other job.
        local run, raw = none, raws[at] or look_at(job_keys[at], 0)
        local readable = not some
        if some then
          local fine, fields = pcall(run_open, run_keys[at])
          run, readable = fine and fields or none, fine
        end
        local crashes, kind, size, left = tonumber(run.crashes or 0), envelope_kind(raw), #raw, nil
        if kind and not readable then kind = 'corrupt' end
        if run.heir and kind == 'J' then
          left, size = left_by_parents(ask.prefix, id, raw, run.cause)
          size = size + #raw
        end
        if crashes > 0 and crashed >= ask.crashed_max then -- anchor: crashed-jobs-of-a-claim-are-bounded
          head.class.passed, head.passed = true, true
          bound = math.min(bound + 1, 2000 + most)
        -- anchor: leased-job-is-not-claimed
        elseif not kind or kind == 'T' or (run.nonce and run.nonce ~= '' and redis.call('ZSCORE', active, id)) then
          -- The job holds a token: this entry is left over from a script that was cut off, and must not start
          -- the job again.
          head.skipped[#head.skipped + 1] = id
          if runs[at] and (not kind or kind == 'T') then head.ended = { id, head.ended } end
        elseif kind == 'corrupt' then
          head.unread[#head.unread + 1] = id -- anchor: unreadable-envelope-is-set-aside
        elseif run.fence and tonumber(run.fence) >= EXACT_MAX then
          -- 2^53 - 1: beyond it two fences could be equal, as Lua has no odd numbers there (rule 6).
          head.unread[#head.unread + 1], head.spent = id, head.spent or {}
          head.spent[id] = true
        -- anchor: expired-job-is-not-started
        elseif expiries[at] and tonumber(expiries[at]) <= now_ms and never_started(run.fence, run.claims, run.unstarted) then
          head.expired[#head.expired + 1], overdue = id, overdue + 1
          full = overdue >= 200
        elseif least_band and 10 - string.byte(raw) % 16 > least_band then -- anchor: visit-stays-in-its-band
          return taken
        elseif #picked > 0 and bytes + size > REPLY_BYTES then -- anchor: claim-is-bounded-in-bytes
          full = true
          return taken
        elseif metered and not spend(head, envelope_cost(raw)) then
          return taken
        else
          bytes = bytes + size
          if crashes > 0 then crashed = crashed + 1 end
          taken = taken + 1
          -- anchor: fences-only-grow
          picked[#picked + 1] = { id = id, raw = raw, run_key = run_keys[at], fence = math.max(tonumber(run.fence or 0) + 1, now_ms),
            claims = tonumber(run.claims or 0) + 1, failures = tonumber(run.failures or 0), crashes = crashes,
            class = head.class,
            -- anchor: picked-job-knows-its-limit
            limit = head.limit, ran = runs[at], cost = metered and envelope_cost(raw), left = left }
          head.jobs[#head.jobs + 1] = id
        end
        head.offset = head.offset + 1
        looked = looked + 1
      end
      head.exhausted = last
      if last or full then break end
    end
    return taken
  end

  for _, class in ipairs(classes) do
    class.seen = 0
    read_page(class)
  end
  local visits = 0
  while #picked < ask.limit and not full and visits < ask.limit + 99 do
    local at = best_head()
    if not at then break end
    visits = visits + 1
    local head = table.remove(heads, at)
    local class = head.class
    head.limit = limited and head.key ~= '' and limit_of(head) or nil
    if not head.seen then
      head.seen = true
      visited[#visited + 1] = head
    end
    if head.limit and head.limit.room <= 0 then
      head.blocked = head.limit
    else
      local rival = best_head()
      -- anchor: visit-leaves-room-for-others
      local most = math.min(ask.limit - #picked, class.room, head.limit and head.limit.room or math.huge, rival and 10 or math.huge)
      local taken = visit(head, most, rival and math.floor(heads[rival].score / band_size))
      class.picked = class.picked + taken
      -- Classes that differ only by their target share the limit of their name.
      for _, other in ipairs(class.limit and classes or {}) do
        -- anchor: classes-share-the-room-of-their-limit
        if other.limit == class.limit then other.room = other.room - taken end
      end
      if head.limit then head.limit.room = head.limit.room - taken end
      local next_job = head.exhausted and {} or entries(head, 1, 'WITHSCORES')
      -- The claim removes all entries before this one, unless it has skipped some.
      head.next_job = not head.passed and not first and next_job or nil
      -- The lane was served, even if it is empty or blocked by now. If it fills up again, lanes that already
      -- wait come first.
      if (taken > 0 or head.passed) and (rival or next_job[1]) then
        virtual_time = virtual_time + 1 -- anchor: served-lane-goes-behind-its-band
        head.virtual_time = virtual_time
      end
      if head.limit and head.limit.room <= 0 then
        head.blocked = head.limit
      elseif next_job[1] and not full and (taken > 0 or not head.passed) then
        head.score = math.floor(tonumber(next_job[2]) / band_size) * band_size + head.virtual_time
        heads[#heads + 1] = head
      end
    end
  end
  return picked, visited, virtual_time
end

-- Lease up to `ask.limit` jobs of the classes under (fence, nonce). Returns kind, jobs (7 values each), the
-- ids buried as corrupt, and the open classes; ids and classes are nil if it read none. The ids include
-- `ask.corrupt`, those that the promotion before it has buried. Then whether any limit is defined, and the
-- results of parents for these jobs (left_by_parents).
-- keys: sweep, active, stats, record
-- ask: prefix, classes, incarnation, counter, limit, lease_ms, not_after_ms, owner, crashed_max, least, most,
-- corrupt, virtual_time, last_claim (the value of `record`), lengths (of leases, see lease_lengths)
local function claim_jobs(keys, ask, now_ms, events)
  local nonce, prefix, corrupt = ask.incarnation .. ':' .. ask.counter, ask.prefix, ask.corrupt
  local left = {}
  local known, jobs = claim_known(prefix, keys.active, ask.last_claim, nonce, ask.counter, corrupt, left)
  if known then return known, jobs, corrupt, nil, nil, left end -- anchor: claim-is-recognized-when-repeated
  if now_ms > ask.not_after_ms then return 'void', jobs, corrupt end -- anchor: late-claim-is-void

  local open, closed, limited
  open, closed, limited, ask.expiring = open_classes(prefix, ask.classes, now_ms)
  local picked, lanes, virtual_time = pick_jobs(open, limited, keys.active, ask, now_ms)

  -- The writes begin. `active` comes first: until the job leaves its lane, only the token in `run` counts.
  -- The names of limits are written to `run` before the lease counts against them, so whatever ends the lease
  -- frees the slots.
  local deadline_ms, leases, entries, counted = now_ms + ask.lease_ms, { ask.counter }, {}, {}
  if #picked > 0 then note_lease(keys.sweep, ask.lease_ms, ask.lengths) end
  for at, job in ipairs(picked) do entries[2 * at - 1], entries[2 * at] = deadline_ms, job.id end
  -- anchor: every-picked-job-is-leased
  for at = 1, #entries, PIECE do redis.call('ZADD', keys.active, unpack(entries, at, math.min(at + PIECE - 1, #entries))) end
  if ask.expiring then
    -- A started job never expires, however long it runs and however often it is retried.
    for at, job in ipairs(picked) do entries[at] = due_member(envelope_open(job.raw).sequence, job.id) end
    -- anchor: started-jobs-do-not-expire
    for at = 1, #picked, PIECE do redis.call('ZREM', prefix .. 'expiring', unpack(entries, at, math.min(at + PIECE - 1, #picked))) end
  end
  local first_leases = {}
  for at, job in ipairs(picked) do
    local fence, words = string.format('%d', job.fence), '' -- anchor: fence-keeps-every-digit
    for round = 1, (job.class.limit or job.limit) and 2 or 0 do
      local limit = round == 1 and job.class.limit and job.class or round == 2 and job.limit
      if limit then
        words = words .. ' ' .. limit.limit
        local group = counted[limit.limit] or { limit = limit, ids = {}, fences = {}, costs = {} }
        group.ids[#group.ids + 1], group.fences[#group.fences + 1], group.costs[#group.costs + 1] = job.id,
          fence, job.cost
        counted[limit.limit] = group
      end
    end
    local seal = envelope_seal(job.raw)
    if job.ran or words ~= '' then
      run_write(job.run_key, 'fence', fence, 'nonce', nonce, 'seal', seal, 'renewal', 0, 'owner', ask.owner,
        'claims', job.claims,
        'failures', job.failures, 'crashes', job.crashes, 'limits', words)
    else
      first_leases[#first_leases + 1], first_leases[#first_leases + 2] = job.run_key,
        run_start(fence, nonce, seal, ask.owner)
    end
    leases[at + 1] = job.id .. ' ' .. fence -- anchor: claim-leaves-the-envelope-whole
    if events then table.insert(events, { 'claimed', job.id, envelope_open(job.raw).name, ask.owner }) end
    local slot = 7 * at - 6
    jobs[slot], jobs[slot + 1], jobs[slot + 2], jobs[slot + 3] = job.id, job.fence, deadline_ms, job.claims
    -- anchor: each-job-is-claimed-with-its-own-payload
    jobs[slot + 4], jobs[slot + 5], jobs[slot + 6] = job.failures, job.crashes, job.raw
    left[#left + 1] = job.left
  end
  -- anchor: every-first-lease-is-written
  for at = 1, #first_leases, PIECE do redis.call('MSET', unpack(first_leases, at, math.min(at + PIECE - 1, #first_leases))) end
  for _, group in pairs(counted) do count_leases(prefix, group.limit, group, deadline_ms, now_ms) end
  for _, lane in ipairs(lanes) do
    for _, id in ipairs(lane.unread) do
      local spent = lane.spent and lane.spent[id]
      local why = spent and 'fences exhausted at 2^53' or 'corrupt envelope'
      bury_job(prefix, spent and envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. id, 0, HEAD_LAST))
        or {}, id, now_ms, events, why)
      run_note(prefix .. 'run:' .. id, 'error', why)
      corrupt[#corrupt + 1] = id
    end
    for _, id in ipairs(lane.expired) do
      expire_job(prefix, envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. id, 0, HEAD_LAST)), id,
        now_ms, virtual_time, {}, events)
    end
    leave_lane(prefix, lane, now_ms)
  end
  if virtual_time > ask.virtual_time then
    redis.call('HSET', keys.stats, 'turn', string.format('%d', virtual_time))
  end
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
