-- What a claim picks (rules 17 to 19): the candidates in the order of their lanes, and which of them it
-- admits. It reads only. `pick` is what one claim has found so far (pick_jobs), `head` the lane that it
-- visits.
-- RARELY due_member, envelope_cost, envelope_open, expiries_of, lane_limit, left_by_parents, limit_room,
--        never_started, pay_rates, run_open
-- USES children/children: left_by_parents
--      core/envelope: envelope_cost, envelope_kind, envelope_open, look_at
--      core/job: never_started
--      core/lane: due_member
--      core/limit: limit_room
--      core/run: run_open

-- Candidates: ids of a lane from the first one that this claim has not passed.
local function lane_entries(pick, head, count, ...)
  -- anchor: lane-is-served-from-its-head
  if not pick.first then return redis.call('ZRANGE', head.zset, head.offset, head.offset + count - 1, ...) end
  return redis.call('ZRANGE', head.zset, pick.first, pick.last, 'BYSCORE', 'LIMIT', head.offset, count, ...)
end

-- Candidates: read the next 16 ready lanes of a class.
local function read_lanes(pick, class)
  local page = redis.call('ZRANGE', class.ready, class.seen, class.seen + 15, 'WITHSCORES')
  for at = 1, #page, 2 do
    local name, score = page[at], tonumber(page[at + 1])
    local head = { name = name, score = score, class = class, key = string.sub(name, #class.name + 2),
      virtual_time = score % BAND, zset = pick.prefix .. 'lane:' .. name, offset = 0, jobs = {},
      skipped = {}, unread = {}, expired = {} }
    -- A lane's score comes from its best job, which may have a priority above the range.
    local job = pick.first and (score <= pick.last and lane_entries(pick, head, 1, 'WITHSCORES') or {})
    if job and job[1] then
      head.score = math.floor(tonumber(job[2]) / BAND) * BAND + head.virtual_time
    end
    if not job or job[1] then pick.heads[#pick.heads + 1] = head end
  end
  class.seen = class.seen + #page / 2
  class.tail = #page == 32 and not (pick.first and class.seen >= 1000) and tonumber(page[32]) or nil
end

-- Candidates: the index of the best lane whose class has room left. Lanes that are not read yet come after
-- the last one that was read.
local function best_lane(pick)
  local heads, best = pick.heads
  repeat
    best = nil
    for at, head in ipairs(heads) do
      if head.class.room > 0 and (not best or head.score < heads[best].score) then best = at end
    end
    local read = false
    for _, class in ipairs(pick.classes) do
      if class.tail and class.room > 0 and (not best or heads[best].score > class.tail) then
        read_lanes(pick, class)
        read = true
      end
    end
  until not read
  return best
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

-- Candidates: the next entries of a lane, at most 16: their ids, and a page of their envelopes, runs and
-- expiries.
local function read_entries(pick, head, count)
  local ids, job_keys, run_keys, none = lane_entries(pick, head, count), {}, {}, pick.none
  if not ids[1] then return ids end
  local job_prefix, run_prefix = pick.prefix .. 'job:', pick.prefix .. 'run:'
  for at, id in ipairs(ids) do job_keys[at], run_keys[at] = job_prefix .. id, run_prefix .. id end
  local raws = redis.call('MGET', unpack(job_keys))
  -- This one read is enough for jobs that were never claimed, as most are. A key of another type reads as
  -- nil.
  local some = redis.call('EXISTS', unpack(run_keys)) > 0
  return ids, { job_keys = job_keys, run_keys = run_keys, raws = raws,
    runs = some and redis.call('MGET', unpack(run_keys)) or none,
    expiries = pick.ask.expiring and expiries_of(pick.prefix, ids, raws) or none }
end

-- Candidates: one entry of such a page: the job's id, envelope and kind, its size in a reply, and the fence
-- of a lease on it. Only where it has run before: `ran`, its run, and its counters. Only where they are set:
-- when it expires, what its parents have left, and its limit.
local function entry_of(pick, head, page, at, id)
  -- A key of another type reads as nil above. Its job is buried as corrupt, and blocks no other job.
  local raw = page.raws[at] or look_at(page.job_keys[at], 0)
  local entry = { id = id, raw = raw, kind = envelope_kind(raw), size = #raw, run_key = page.run_keys[at],
    class = head.class }
  local run = pick.none
  if page.runs ~= run then
    local readable, fields = pcall(run_open, entry.run_key)
    if not readable and entry.kind then entry.kind = 'corrupt' end
    if readable and fields then run = fields end
    entry.run, entry.ran = run, page.runs[at]
    entry.claims = (tonumber(run.claims or 0) or 0) + 1
    entry.failures, entry.crashes = tonumber(run.failures or 0), tonumber(run.crashes or 0)
    if run.heir and entry.kind == 'J' then
      local size
      entry.left, size = left_by_parents(pick.prefix, id, raw, run.cause)
      entry.size = size + #raw
    end
  end
  -- anchor: fences-only-grow
  entry.fence = math.max((tonumber(run.fence or 0) or 0) + 1, pick.now_ms)
  if page.expiries ~= pick.none then entry.expires_ms = page.expiries[at] end
  -- anchor: picked-job-knows-its-limit
  if head.limit then entry.limit = head.limit end
  return entry
end

-- Admit: the limit of a lane's key, nil where none is defined. A claim reads each once.
local function lane_limit(pick, head)
  local limit, prefix = 'k:' .. head.key, pick.prefix
  if pick.limits[limit] == nil then
    local own = redis.call('HMGET', prefix .. 'limits', limit, 'k:*')
    local definition = own[1] or own[2]
    pick.limits[limit] = false
    if definition then
      local room, until_ms, ahead, units, rate = limit_room(prefix, limit, definition, pick.now_ms)
      pick.limits[limit] = { limit = limit, definition = definition, room = room, until_ms = until_ms,
        ahead = ahead, units = units, rate = rate }
    end
  end
  return pick.limits[limit] or nil
end

-- Admit: charge the cost of a job to the rates of its limits. Returns false if they have too few units
-- left. Then the jobs behind it wait as well, or it would wait for ever. `need` records how many units it
-- waits for.
local function pay_rates(pick, head, cost)
  local meter, limit = head.class.meter, head.limit
  local by_name, by_key = meter and meter.rate and math.min(cost, meter.rate),
    limit and limit.rate and math.min(cost, limit.rate)
  if by_name and by_name > meter.units then
    meter.need = by_name
    for _, other in ipairs(pick.classes) do
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

-- Admit: whether the claim takes a job. True; false for an entry without a runnable job, which is set apart;
-- nil if the visit of the lane ends before this job.
local function admit(pick, head, entry, least_band)
  local id, kind, run = entry.id, entry.kind, entry.run or pick.none
  -- anchor: leased-job-is-not-claimed
  if not kind or kind == 'T' or (run.nonce and run.nonce ~= '' and redis.call('ZSCORE', pick.active, id)) then
    -- The job holds a token: this entry is left over from a script that was cut off, and must not start the
    -- job again.
    head.skipped[#head.skipped + 1] = id
    if entry.ran and (not kind or kind == 'T') then head.ended = { id, head.ended } end
  elseif kind == 'corrupt' then
    head.unread[#head.unread + 1] = id -- anchor: unreadable-envelope-is-set-aside
  elseif run.fence and tonumber(run.fence) >= EXACT_MAX then
    -- 2^53 - 1: beyond it two fences could be equal, as Lua has no odd numbers there (rule 6).
    head.unread[#head.unread + 1], head.spent = id, head.spent or {}
    head.spent[id] = true
  -- anchor: expired-job-is-not-started
  elseif entry.expires_ms and tonumber(entry.expires_ms) <= pick.now_ms and never_started(run.fence, run.claims, run.unstarted) then
    head.expired[#head.expired + 1], pick.overdue = id, pick.overdue + 1
    pick.full = pick.overdue >= 200
  elseif least_band and 10 - string.byte(entry.raw) % 16 > least_band then -- anchor: visit-stays-in-its-band
    return nil
  elseif #pick.jobs > 0 and pick.bytes + entry.size > REPLY_BYTES then -- anchor: claim-is-bounded-in-bytes
    pick.full = true
    return nil
  else
    if not (head.class.meter or head.limit) then return true end
    entry.cost = envelope_cost(entry.raw)
    return pay_rates(pick, head, entry.cost) or nil
  end
  return false
end

-- Take up to `most` jobs of a lane, none of a lower band than `least_band`, and return their number. Entries
-- without a runnable job are bounded by 99. A skipped job must not hide those behind it, so each allows one
-- more entry, up to 2,000 (some 3 ms). Sets `head.exhausted` after the lane's last entry.
local function visit_lane(pick, head, most, least_band)
  local taken, looked, bound = 0, 0, most + 99
  while taken < most and looked < bound do
    local count = math.min(16, most - taken)
    local ids, page = read_entries(pick, head, count)
    for at, id in ipairs(ids) do
      local entry = entry_of(pick, head, page, at, id)
      local crashed = (entry.crashes or 0) > 0
      -- anchor: crashed-jobs-of-a-claim-are-bounded
      if crashed and pick.crashed >= pick.ask.crashed_max then
        head.class.passed, head.passed = true, true
        bound = math.min(bound + 1, 2000 + most)
      else
        local admitted = admit(pick, head, entry, least_band)
        if admitted == nil then return taken end
        if admitted then
          -- Take it: claim_jobs leases it.
          taken, pick.bytes = taken + 1, pick.bytes + entry.size
          if crashed then pick.crashed = pick.crashed + 1 end
          pick.jobs[#pick.jobs + 1], head.jobs[#head.jobs + 1] = entry, id
        end
      end
      head.offset = head.offset + 1
      looked = looked + 1
    end
    head.exhausted = #ids < count
    if head.exhausted or pick.full then break end
  end
  return taken
end

-- Visit the next lane. A visit ends after 10 jobs, or if the lane's next job has a lower band
-- than the next ready lane. A lane that still has jobs goes behind the others of its band. A lane that is
-- alone is emptied in one visit.
local function serve_lane(pick, head)
  local class, at = head.class, best_lane(pick)
  local rival = at and pick.heads[at]
  -- anchor: visit-leaves-room-for-others
  local most = math.min(pick.ask.most - #pick.jobs, class.room, head.limit and head.limit.room or math.huge, rival and 10 or math.huge)
  local taken = visit_lane(pick, head, most, rival and math.floor(rival.score / BAND))
  class.picked = class.picked + taken
  -- Classes that differ only by their target share the limit of their name.
  for _, other in ipairs(class.limit and pick.classes or {}) do
    -- anchor: classes-share-the-room-of-their-limit
    if other.limit == class.limit then other.room = other.room - taken end
  end
  if head.limit then head.limit.room = head.limit.room - taken end
  local next_job = head.exhausted and {} or lane_entries(pick, head, 1, 'WITHSCORES')
  -- The claim removes all entries before this one, unless it has skipped some.
  head.next_job = not head.passed and not pick.first and next_job or nil
  -- The lane was served, even if it is empty or blocked by now. If it fills up again, lanes that already wait
  -- come first.
  if (taken > 0 or head.passed) and (rival or next_job[1]) then
    pick.virtual_time = pick.virtual_time + 1 -- anchor: served-lane-goes-behind-its-band
    head.virtual_time = pick.virtual_time
  end
  if head.limit and head.limit.room <= 0 then
    head.blocked = head.limit
  elseif next_job[1] and not pick.full and (taken > 0 or not head.passed) then
    head.score = math.floor(tonumber(next_job[2]) / BAND) * BAND + head.virtual_time
    pick.heads[#pick.heads + 1] = head
  end
end

-- Choose the jobs that a claim will lease. Ready lanes are visited in their order over all open classes:
-- the best band first, then virtual time. With `lowest` and `highest` only jobs of those priorities count, in
-- the first 1,000 ready lanes of each class. Expired jobs are set apart, up to 200; then the claim ends,
-- and the next one goes on (rule 38).
-- Returns jobs, lanes and the last virtual time. A lane has its picked jobs, its entries without a runnable
-- job, its virtual time, and the limit that blocks it.
-- ask: prefix, most, crashed_max, lowest, highest, virtual_time, expiring (whether any job may expire);
-- limited: whether any limit is defined
local function pick_jobs(classes, limited, active, ask, now_ms)
  local pick = { ask = ask, prefix = ask.prefix, classes = classes, active = active, now_ms = now_ms,
    none = {},
    -- The range of scores that jobs of these priorities have in a lane.
    first = ask.lowest and (10 - ask.highest) * BAND, last = ask.lowest and (11 - ask.lowest) * BAND - 1,
    heads = {}, limits = {}, jobs = {}, bytes = 0, crashed = 0, overdue = 0, full = false,
    virtual_time = ask.virtual_time }
  for _, class in ipairs(classes) do
    class.seen = 0
    read_lanes(pick, class)
  end
  local visits, visited = 0, {}
  while #pick.jobs < ask.most and not pick.full and visits < ask.most + 99 do
    local at = best_lane(pick)
    if not at then break end
    visits = visits + 1
    local head = table.remove(pick.heads, at)
    head.limit = limited and head.key ~= '' and lane_limit(pick, head) or nil
    if not head.seen then
      head.seen = true
      visited[#visited + 1] = head
    end
    if head.limit and head.limit.room <= 0 then
      head.blocked = head.limit
    else
      serve_lane(pick, head)
    end
  end
  return pick.jobs, visited, pick.virtual_time
end
