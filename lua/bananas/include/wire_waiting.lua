-- Jobs that wait: what they are, where, and in which order they are claimed.
local function wire_waiting(w, shared)
  local keys, text = shared.keys, shared.text

  -- 0 for what is no time, and for the year 1, which is Go's time that was never set.
  local function at(given) return type(given) == 'string' and math.max(shared.ms_of(given) or 0, 0) or 0 end

  function w.read(id)
    local body = redis.pcall('GET', keys.job(id))
    if not body then return nil end
    if type(body) == 'table' then
      return { kind = 'corrupt', why = 'the key of the job is a ' .. redis.call('TYPE', keys.job(id)).ok .. ', it must be a string', body = '' }
    end
    local job, why = text.open(body)
    if not job then return { kind = 'corrupt', why = why, body = body } end
    local priority = keys.number[job.priority] and job.priority or 'normal'
    local route = job.routing_key ~= '' and job.routing_key or 'default'
    return { kind = 'J', name = job.name, body = body, failures = math.max(job.attempts or 0, 0), attempts = math.max(job.max_retries or 0, 1),
      priority = keys.number[priority], enqueued_ms = at(job.created_at), due_ms = at(job.scheduled_for),
      status = job.status or '', level = priority, route = route, error = job.error or '', updated_ms = at(job.updated_at) }
  end

  -- Where a job belongs: the list that it was taken from last, where that was another one than it says itself.
  function shared.home(id, job)
    return redis.call('GET', shared.prefix .. 'from:' .. id) or keys.list(job.route, job.level)
  end

  -- The waiting list that has this id.
  local function waits_in(id, job)
    local first = job and keys.list(job.route, job.level)
    if first and redis.call('LPOS', first, id) then return first end
    for _, route in ipairs(keys.routes()) do
      for _, priority in ipairs(keys.priorities) do
        for _, list in ipairs(keys.lists(route, priority)) do
          if list ~= first and redis.call('LPOS', list, id) then return list end
        end
      end
    end
  end
  shared.waits_in = waits_in

  function w.place(id)
    local job = w.read(id)
    if job and job.kind ~= 'J' then job = nil end
    if redis.call('LPOS', keys.processing, id) then return 'active' end
    if redis.call('ZSCORE', keys.scheduled, id) then return 'delayed' end
    -- A requeue leaves it last: cut off before that, the job is still dead, and another copy does the rest.
    if redis.call('LPOS', keys.dead, id) then return 'dead' end
    if waits_in(id, job) then return 'waiting' end
    return job and job.status == 'completed' and 'done' or nil
  end

  -- How many ids of these lists come before depth `depth`, where the lists take turns.
  local function before(sizes, depth)
    local total = 0
    for _, size in ipairs(sizes) do total = total + math.min(size, depth) end
    return total
  end

  -- Up to `count` ids of lists that take turns, from rank `from` on, into `found`.
  local function by_turns(lists, sizes, from, count, found, seen)
    local low, high = 0, math.max(0, unpack(sizes))
    while low < high do
      local middle = math.ceil((low + high) / 2)
      if before(sizes, middle) <= from then low = middle else high = middle - 1 end
    end
    local depth, pages, longer = low, {}, 0
    for _, size in ipairs(sizes) do longer = longer + (size > depth and 1 or 0) end
    if longer == 0 then return 0 end
    local rank, taken = before(sizes, depth), 0
    local most = math.ceil((count + from - rank) / longer) + 1
    for at, list in ipairs(lists) do
      pages[at] = sizes[at] > depth and redis.call('LRANGE', list, -depth - most, -depth - 1) or {}
    end
    for turn = 1, most do
      for at, list in ipairs(lists) do
        local id = pages[at][#pages[at] - turn + 1]
        if id and taken < count then
          if rank >= from then
            taken = taken + 1
            -- A scheduler of the live programs may have brought one job there several times.
            if not seen[id] then found[#found + 1], seen[id] = { id = id, place = list }, true end
          end
          rank = rank + 1
        end
      end
    end
    return taken
  end

  -- Priorities are strict over all routes of the worker; routes of one priority take turns, each another one first.
  function w.candidates(from, count, worker)
    local found, seen, rank, left, routes = {}, {}, 0, count, {}
    for _, route in ipairs(worker.routes) do
      routes[#routes + 1] = route
      keys.note_route(route)
    end
    table.sort(routes)
    for _ = 1, shared.now_ms % math.max(#routes, 1) do table.insert(routes, table.remove(routes, 1)) end
    local least, most = unpack(worker.priorities or { 1, 10 })
    for _, priority in ipairs(keys.priorities) do
      local lists, sizes, total = {}, {}, 0
      for _, route in ipairs(keys.number[priority] >= least and keys.number[priority] <= most and routes or {}) do
        for _, list in ipairs(keys.lists(route, priority)) do
          local size = redis.pcall('LLEN', list)
          size = type(size) == 'number' and size or 0
          lists[#lists + 1], sizes[#sizes + 1], total = list, size, total + size
        end
      end
      local skip = math.max(0, from - rank)
      if left > 0 and skip < total then left = left - by_turns(lists, sizes, skip, left, found, seen) end
      rank = rank + total
    end
    local reached = from + count - left
    return found, reached < rank and reached or 0
  end
end
