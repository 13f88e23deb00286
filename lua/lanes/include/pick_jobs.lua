-- What a claim will lease, and what it found on the way; reads only (rules 17 to 19). Ready lanes are visited in their order over
-- all open classes, best band first, then virtual time. A visit ends after 10 jobs, or where the lane's next job has a lower band
-- than the next ready lane; a lane that still has work goes behind the others of its band. A lone lane is emptied at once. With `least`
-- and `most` only jobs of those priorities count, of the first 1,000 ready lanes of each class.
-- Returns jobs, lanes (each with what was picked and what leads nowhere, its turn, and the limit that blocks it), the last turn.
-- ask: prefix, limit, crashed_max, least, most, turn; limited: whether any limit is defined
-- helpers: envelope_kind, envelope_cost, limit_room, check_types
local function pick_jobs(classes, limited, active, ask, now_ms, helpers)
  local band_size, picked, visited, heads, keys, bytes, crashed, full = 562949953421312, {}, {}, {}, {}, 0, 0, false
  local turn, job_prefix, run_prefix, none = ask.turn, ask.prefix .. 'job:', ask.prefix .. 'run:', {}
  -- Where in a lane the jobs of these priorities stand.
  local first, last = ask.least and (10 - ask.most) * band_size, ask.least and (11 - ask.least) * band_size - 1
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
        turn = score % band_size, zset = ask.prefix .. 'lane:' .. name, offset = 0, jobs = {}, skipped = {}, unread = {} }
      -- A lane is ready by its best job, which may be too good.
      local job = first and (score <= last and entries(head, 1, 'WITHSCORES') or {})
      if job and job[1] then head.score = math.floor(tonumber(job[2]) / band_size) * band_size + head.turn end
      if not job or job[1] then heads[#heads + 1] = head end
    end
    class.seen = class.seen + #page / 2
    class.tail = #page == 32 and not (first and class.seen >= 1000) and tonumber(page[32]) or nil
  end
  -- The place of the best head whose class has room left. What is not read yet of a class lies behind the last that was.
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
        local room, until_ms, ahead, units, rate = helpers.limit_room(ask.prefix, limit, definition, now_ms)
        keys[limit] = { limit = limit, definition = definition, room = room, until_ms = until_ms, ahead = ahead,
          units = units, rate = rate }
      end
    end
    return keys[limit]
  end
  -- Take what a job costs of the places that the rates of its limits have left. False: they are too few, and what comes after it
  -- waits as well, or it would wait for ever; `need` says for how many.
  local function spend(head, cost)
    local meter, limit = head.class.meter, head.limit
    local by_name, by_key = meter and meter.rate and math.min(cost, meter.rate), limit and limit.rate and math.min(cost, limit.rate)
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
  -- Take up to `most` jobs of a lane, none of a lower band than `least_band`. What leads nowhere is bounded by 99; what is passed by
  -- must not hide what lies behind it, so for it there are more entries, up to 2,000 (some 3 ms). Envelopes are read 16 at a time.
  local function visit(head, most, least_band)
    local taken, looked, bound, metered = 0, 0, most + 99, head.class.meter or head.limit
    while taken < most and looked < bound do
      local size = math.min(16, most - taken)
      local page, job_keys, run_keys = entries(head, size), {}, {}
      if not page[1] then break end
      for at, id in ipairs(page) do job_keys[at], run_keys[at] = job_prefix .. id, run_prefix .. id end
      local raws = redis.call('MGET', unpack(job_keys))
      -- Most jobs have never been claimed: then one call says so for all.
      local some_ran = redis.call('EXISTS', unpack(run_keys)) > 0
      for at, id in ipairs(page) do
        local run = some_ran and redis.pcall('HMGET', run_keys[at], 'fence', 'claims', 'failures', 'crashes', 'nonce') or none
        -- A key of another type reads as nothing above: the error names it.
        if run.err or not raws[at] then helpers.check_types({}, { run_keys[at] }, {}, { job_keys[at] }) end
        local crashes, raw = tonumber(run[4] or 0), raws[at]
        local kind = helpers.envelope_kind(raw)
        if crashes > 0 and crashed >= ask.crashed_max then -- anchor: crashed-jobs-of-a-claim-are-bounded
          head.class.passed, head.passed = true, true
          bound = math.min(bound + 1, 2000 + most)
        elseif not kind or kind == 'T' or (run[5] and run[5] ~= '' and redis.call('ZSCORE', active, id)) then
          -- A live token elsewhere: this entry is left over from a script that was cut off, and must not start the job again.
          head.skipped[#head.skipped + 1] = id
          if some_ran and (not kind or kind == 'T') then head.ended = { id, head.ended } end
        elseif kind == 'corrupt' then
          head.unread[#head.unread + 1] = id -- anchor: unreadable-envelope-is-set-aside
        elseif least_band and 10 - string.byte(raw, 3) > least_band then -- anchor: visit-stays-in-its-band
          return taken
        elseif #picked > 0 and bytes + #raw > 1048576 then -- anchor: claim-is-bounded-in-bytes
          full = true
          return taken
        elseif metered and not spend(head, helpers.envelope_cost(raw)) then
          return taken
        else
          bytes = bytes + #raw
          if crashes > 0 then crashed = crashed + 1 end
          taken = taken + 1
          -- anchor: fences-only-grow
          picked[#picked + 1] = { id = id, raw = raw, run_key = run_keys[at], fence = math.max(tonumber(run[1] or 0) + 1, now_ms),
            claims = tonumber(run[2] or 0) + 1, failures = tonumber(run[3] or 0), crashes = crashes, class = head.class,
            -- anchor: picked-job-knows-its-limit
            limit = head.limit, ran = run[1], cost = metered and helpers.envelope_cost(raw) }
          head.jobs[#head.jobs + 1] = id
        end
        head.offset = head.offset + 1
        looked = looked + 1
      end
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
      -- Classes that differ by their target alone share the limit of their name.
      for _, other in ipairs(class.limit and classes or {}) do
        if other.limit == class.limit then other.room = other.room - taken end -- anchor: classes-share-the-room-of-their-limit
      end
      if head.limit then head.limit.room = head.limit.room - taken end
      local next_job = entries(head, 1, 'WITHSCORES')
      -- It has had its turn, also when it is empty or blocked by now: it may be filled again before those come first that wait already.
      if (taken > 0 or head.passed) and (rival or next_job[1]) then
        turn = turn + 1 -- anchor: served-lane-goes-behind-its-band
        head.turn = turn
      end
      if head.limit and head.limit.room <= 0 then
        head.blocked = head.limit
      elseif next_job[1] and not full and (taken > 0 or not head.passed) then
        head.score = math.floor(tonumber(next_job[2]) / band_size) * band_size + head.turn
        heads[#heads + 1] = head
      end
    end
  end
  return picked, visited, turn
end
