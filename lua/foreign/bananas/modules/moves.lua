-- Bananas: waiting jobs, and how jobs move between lists.
-- USES bananas/looks: wire_set_aside
--      bananas/wire: at_job, at_list, go_quoted, go_time, known_routes, lists_of, note_route, open_job,
--        rfc3339_ms, with_members
--      foreign/claim: own_words

-- Jobs that wait: what they are, where, and in which order they are claimed.

-- A time in ms; 0 for a text that is no time, and for the year 1, which is Go's zero time.
local function ms_of(given)
  return type(given) == 'string' and math.max(rfc3339_ms(given) or 0, 0) or 0
end

local function wire_read(w, id)
  local body = redis.pcall('GET', at_job(w, id))
  if not body then return nil end
  if type(body) == 'table' then
    return { kind = 'corrupt', why = 'the key of the job is a ' .. redis.call('TYPE', at_job(w, id)).ok
      .. ', it must be a string', body = '' }
  end
  local job, why = open_job(body)
  if not job then return { kind = 'corrupt', why = why, body = body } end
  local priority = w.number[job.priority] and job.priority or 'normal'
  local route = job.routing_key ~= '' and job.routing_key or 'default'
  return { kind = 'J', name = job.name, body = body, failures = math.max(job.attempts or 0, 0),
    attempts = math.max(job.max_retries or 0, 1),
    priority = w.number[priority], enqueued_ms = ms_of(job.created_at), due_ms = ms_of(job.scheduled_for),
    status = job.status or '', level = priority, route = route, error = job.error or '',
    updated_ms = ms_of(job.updated_at) }
end

-- The list of a job: the one that it was taken from last, if that is not the one of its own members.
local function home_of(w, id, job)
  return redis.call('GET', w.prefix .. 'from:' .. id) or at_list(w, job.route, job.level)
end

-- The waiting list that has this id.
local function waits_in(w, id, job)
  local first = job and at_list(w, job.route, job.level)
  if first and redis.call('LPOS', first, id) then return first end
  for _, route in ipairs(known_routes(w)) do
    for _, priority in ipairs(w.priorities) do
      for _, list in ipairs(lists_of(w, route, priority)) do
        if list ~= first and redis.call('LPOS', list, id) then return list end
      end
    end
  end
end

local function wire_place(w, id)
  local job = wire_read(w, id)
  if job and job.kind ~= 'J' then job = nil end
  if redis.call('LPOS', w.processing, id) then return 'active' end
  if redis.call('ZSCORE', w.scheduled, id) then return 'delayed' end
  -- A requeue removes it from the dead last: if it is cut off before, the job is still dead, and another
  -- copy does the rest.
  if redis.call('LPOS', w.dead, id) then return 'dead' end
  if waits_in(w, id, job) then return 'waiting' end
  return job and job.status == 'completed' and 'done' or nil
end

-- How many ids of these lists come before depth `depth`, when the lists take turns.
local function ranks_before(sizes, depth)
  local total = 0
  for _, size in ipairs(sizes) do total = total + math.min(size, depth) end
  return total
end

-- Add up to `count` ids of lists that take turns, from rank `from` on, to `found`.
local function take_turns(lists, sizes, from, count, found, seen)
  local low, high = 0, math.max(0, unpack(sizes))
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if ranks_before(sizes, middle) <= from then low = middle else high = middle - 1 end
  end
  local depth, pages, longer = low, {}, 0
  for _, size in ipairs(sizes) do longer = longer + (size > depth and 1 or 0) end
  if longer == 0 then return 0 end
  local rank, taken = ranks_before(sizes, depth), 0
  local most = math.ceil((count + from - rank) / longer) + 1
  for at, list in ipairs(lists) do
    pages[at] = sizes[at] > depth and redis.call('LRANGE', list, -depth - most, -depth - 1) or {}
  end
  for round = 1, most do
    for at, list in ipairs(lists) do
      local id = pages[at][#pages[at] - round + 1]
      if id and taken < count then
        if rank >= from then
          taken = taken + 1
          -- A scheduler of the live programs may have added one job several times.
          if not seen[id] then found[#found + 1], seen[id] = { id = id, place = list }, true end
        end
        rank = rank + 1
      end
    end
  end
  return taken
end

-- Priorities are strict over all routes of the worker; routes take turns within a priority, and each call
-- starts with another route.
local function wire_candidates(w, from, count, worker)
  local found, seen, rank, left, routes = {}, {}, 0, count, {}
  for _, route in ipairs(worker.routes) do
    routes[#routes + 1] = route
    note_route(w, route)
  end
  table.sort(routes)
  for _ = 1, w.now_ms % math.max(#routes, 1) do table.insert(routes, table.remove(routes, 1)) end
  local least, most = unpack(worker.priorities or { 1, 10 })
  for _, priority in ipairs(w.priorities) do
    local lists, sizes, total = {}, {}, 0
    for _, route in ipairs(w.number[priority] >= least and w.number[priority] <= most and routes
        or {}) do
      for _, list in ipairs(lists_of(w, route, priority)) do
        local size = redis.pcall('LLEN', list)
        size = type(size) == 'number' and size or 0
        lists[#lists + 1], sizes[#sizes + 1], total = list, size, total + size
      end
    end
    local skip = math.max(0, from - rank)
    if left > 0 and skip < total then left = left - take_turns(lists, sizes, skip, left, found, seen) end
    rank = rank + total
  end
  local reached = from + count - left
  return found, reached < rank and reached or 0
end

-- Jobs are added, claimed, given back, and promoted.

-- item.fields: name and payload as JSON members, priority, routing key, max_retries. The job is written
-- before its entry, because an id without a job would count as corrupt. A repeat that finds the id in no
-- list adds it there.
local function wire_add(w, item, due_ms)
  local members, priority, route, most = unpack(item.fields)
  local later, nanos = due_ms > 0, ''
  -- Jobs that become due in the same second are promoted in the order in which they were made.
  if later then nanos = string.format('%06d', redis.call('INCR', w.prefix .. 'seq') % 1000000) end
  local routing = '"routing_key":' .. go_quoted(route)
  local made = '"' .. go_time(w.now_ms, false, nanos) .. '"'
  local body = '{"id":' .. go_quoted(item.id) .. ',' .. members .. ',"status":"'
    .. (later and 'scheduled' or 'pending') .. '","priority":"' .. priority .. '"'
    .. (w.live and '' or ',' .. routing) .. ',"created_at":' .. made .. ',"updated_at":' .. made
    .. (later and ',"scheduled_for":"' .. go_time(due_ms) .. '"' or '')
      .. ',"attempts":0,"max_retries":' .. most
    .. (w.live and ',' .. routing or '') .. '}'
  note_route(w, route)
  redis.call('SET', at_job(w, item.id), body)
  if later then
    redis.call('ZADD', w.scheduled, math.ceil(due_ms / 1000), item.id)
  else
    redis.call('LPUSH', at_list(w, route, priority), item.id)
  end
end

-- When a worker of the engine has just finished the job (ms). A job that was made later under the same id
-- is another one.
local function finished_ms(w, id, job)
  local run = own_words(w.prefix .. 'run:' .. id, 'outcome', 'ended_ms')
  local ended_ms = run[1] == 'finished' and tonumber(run[2]) or nil
  return ended_ms and job.enqueued_ms < ended_ms and ended_ms
end

local function wire_take(w, id, job, place)
  -- A foreign scheduler that was slow to promote it has written its old copy over the completed job.
  local ended_ms = job.status ~= 'completed' and finished_ms(w, id, job) -- anchor: written-back-has-run
  if ended_ms then
    local changes = { status = '"completed"', updated_at = '"' .. go_time(ended_ms) .. '"',
      scheduled_for = false }
    redis.call('SET', at_job(w, id), with_members(job.body, changes), 'EX', w.done_s)
    redis.call('LREM', place, 0, id)
    return false
  end
  -- A second entry of a job that has ended.
  if job.status == 'completed' or (job.status == 'failed' and redis.call('LPOS', w.dead, id)) then
    redis.call('LREM', place, 0, id)
    return false
  end
  if place ~= at_list(w, job.route, job.level) then
    redis.call('SET', w.prefix .. 'from:' .. id, place, 'PXAT',
      string.format('%d', w.now_ms + FOREIGN_RUN_MS))
  end
  if redis.call('LINDEX', place, -1) == id then
    redis.call('LMOVE', place, w.processing, 'RIGHT', 'LEFT')
    return true
  end
  if not redis.call('LPOS', place, id, 'RANK', -1) then return false end
  redis.call('LPUSH', w.processing, id)
  redis.call('LREM', place, -1, id)
  return true
end

-- If a foreign worker has ended the job, it has removed it from there.
local function wire_mine(w, id)
  return redis.call('LPOS', w.processing, id) and true or false
end

local function wire_back(w, id, job)
  if job.kind ~= 'J' then return wire_set_aside(w, id, w.processing, job.why) end
  redis.call('RPUSH', home_of(w, id, job), id)
  redis.call('LREM', w.processing, 0, id)
end

-- Due ids; those with equal seconds in the order in which their jobs were made, as far as one call reads.
local function wire_due(w, most)
  local words = redis.call('ZRANGE', w.scheduled, '-inf', string.format('%.3f', w.now_ms / 1000),
    'BYSCORE', 'LIMIT', 0, math.max(most, 1000), 'WITHSCORES')
  local found, tied = {}, {}
  for at = 1, #words, 2 do
    local score = words[at + 1]
    found[#found + 1] = { id = words[at], score = tonumber(score), made = '', rank = at }
    tied[score] = (tied[score] or 0) + 1
    if tied[score] == 2 then tied.any = true end
  end
  if tied.any then
    local bytes = 0
    for at, entry in ipairs(found) do
      -- A call reads at most 1 MiB to sort them, but always as many as it was asked for.
      if bytes > REPLY_BYTES and at > most then
        for over = #found, at, -1 do found[over] = nil end
        break
      end
      if tied[words[2 * at]] > 1 then
        local body = redis.pcall('GET', at_job(w, entry.id))
        bytes = bytes + (type(body) == 'string' and #body or 0)
        local job = type(body) == 'string' and open_job(body)
        local made = job and type(job.created_at) == 'string' and job.created_at or ''
        entry.made = string.format('%020.0f', rfc3339_ms(made) or 0) .. string.match(made .. '.', '%.(%d*)')
      end
    end
    table.sort(found, function(one, other)
      if one.score ~= other.score then return one.score < other.score end
      if one.made ~= other.made then return one.made < other.made end
      return one.rank < other.rank
    end)
  end
  local ids = {}
  for at = 1, math.min(most, #found) do ids[at] = found[at].id end
  return ids
end

local function wire_next_due_ms(w)
  local first = redis.call('ZRANGE', w.scheduled, 0, 0, 'WITHSCORES')
  return first[2] and math.ceil(tonumber(first[2]) * 1000) or nil
end

-- Move it back into the list of its route, which the live programs forget here. A member without a job is
-- removed.
local function wire_promote(w, id)
  local job = wire_read(w, id)
  if job and job.kind == 'corrupt' then
    wire_set_aside(w, id, w.scheduled, job.why)
    return false
  end
  if job and job.status ~= 'completed' then
    redis.call('SET', at_job(w, id), with_members(job.body,
      { status = job.status == 'scheduled' and '"pending"' or nil, scheduled_for = false }))
    redis.call('LPUSH', home_of(w, id, job), id)
  end
  redis.call('ZREM', w.scheduled, id)
  return job ~= nil
end

-- The entry of a crashed worker looks like that of a running job, so only time tells them apart. If
-- `adopt_after_ms` is set, entries that the engine has not leased for that long are adopted.
local function wire_strays(w, most)
  if w.adopt_after_ms == 0 then return {} end
  local seen, here, found = w.prefix .. 'adopting', {}, {}
  for _, id in ipairs(redis.call('LRANGE', w.processing, -1000, -1)) do
    if not redis.call('ZSCORE', w.prefix .. 'active', id) then
      here[id] = true
      redis.call('ZADD', seen, 'NX', w.now_ms, id)
    end
  end
  local words = redis.call('ZRANGE', seen, 0, -1, 'WITHSCORES')
  for at = 1, #words, 2 do
    if not here[words[at]] then
      redis.call('ZREM', seen, words[at])
    elseif tonumber(words[at + 1]) <= w.now_ms - w.adopt_after_ms and #found < most then
      found[#found + 1] = words[at]
    end
  end
  return found
end
