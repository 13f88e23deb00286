-- Look for jobs that this worker may claim now, without a write: at the head of the line, and in a window behind the place where its
-- last claim has ended, so that nothing behind jobs for others starves. Returns the picked jobs, candidates that cannot run, and what to
-- remember: { field, value or nil where the next look begins at the head, more = work may be left behind the window }.
-- ask: classes (name -> true), key (what tells workers apart that take different jobs), limit, crashed_max, worker
-- helpers: is_paused, limit_room
local function foreign_scan(prefix, format, ask, now_ms, helpers)
  local field = redis.sha1hex(ask.key)
  local kept = redis.call('HGET', prefix .. 'scan', field)
  local from, since_ms = string.match(kept or '', '^(%d+) (%d+)$')
  from, since_ms = tonumber(from or 0), math.min(tonumber(since_ms or now_ms), now_ms)
  -- Behind all that is for others only what comes anew is looked at; what came in between is found once a second.
  if from > 0 and now_ms - since_ms >= 1000 then from, since_ms = 0, now_ms end
  local some_paused, some_limits = redis.call('HLEN', prefix .. 'paused') > 0, redis.call('HLEN', prefix .. 'limits') > 0
  local picked, broken, seen, rooms, bytes, crashed, full = {}, {}, {}, {}, 0, 0, false
  local function closed(name)
    if rooms[name] == nil then
      local definition = some_limits and redis.call('HGET', prefix .. 'limits', 'n:' .. name)
      local room, ahead = math.huge, nil
      -- A format with rates of its own counts them itself.
      if definition and format.counts_rates then definition = string.gsub(definition, '^(%d+) %d+', '%1 0') end
      if definition then
        local _
        room, _, ahead = helpers.limit_room(prefix, 'n:' .. name, definition, now_ms)
      end
      if (some_paused and helpers.is_paused(prefix .. 'paused', name, now_ms)) or (format.paused and format.paused(name)) then room = 0 end
      rooms[name] = { room = room, limit = definition and 'n:' .. name, definition = definition or nil, ahead = ahead }
    end
    return rooms[name].room <= 0
  end
  local function look(candidate)
    local id = candidate.id
    if seen[id] then return end
    seen[id] = true
    if #id > 256 or not string.find(id, '^[%w_.:>-]+$') then
      broken[#broken + 1] = { id = id, place = candidate.place, why = 'an id that nobody can name' }
      return
    end
    local job = format.read(id)
    if not job or job.kind ~= 'J' then
      broken[#broken + 1] = { id = id, place = candidate.place, why = job and job.why or 'there is no job behind this id' }
      return
    end
    if not ask.classes[job.name] or closed(job.name) then return end
    local range = ask.worker.priorities
    if range and job.priority and (job.priority < range[1] or job.priority > range[2]) then return end
    if format.locked(id) then return end
    local refused, never = format.refuses(job, ask.worker, id)
    if never then
      broken[#broken + 1] = { id = id, place = candidate.place, why = never }
      return
    end
    if refused then return end
    local run = redis.pcall('HMGET', prefix .. 'run:' .. id, 'fence', 'nonce', 'claims', 'crashes')
    if run.err then
      broken[#broken + 1] = { id = id, place = candidate.place, why = 'the key of its run is of another type' }
      return
    end
    local crashes = tonumber(run[4] or 0)
    if crashes > 0 and crashed >= ask.crashed_max then return end
    -- A second entry of a job that runs.
    local held = run[2] and run[2] ~= '' and redis.call('ZSCORE', prefix .. 'active', id)
    if held and format.mine(id, run[1] .. ':' .. run[2]) then return end
    local size = 0
    for _, part in ipairs(type(job.body) == 'table' and job.body or { job.body }) do size = size + #part end
    if #picked > 0 and bytes + size > 1048576 then
      full = true
      return
    end
    bytes, crashed = bytes + size, crashed + (crashes > 0 and 1 or 0)
    local room = rooms[job.name]
    room.room = room.room - 1
    picked[#picked + 1] = { id = id, job = job, place = candidate.place, room = room, known = run[1] and true or false,
      fence = math.max(tonumber(run[1] or 0) + 1, now_ms), claims = tonumber(run[3] or 0) + 1, crashes = crashes }
    if #picked >= ask.limit then full = true end
  end
  local function window(first, size)
    local candidates, next_at = format.candidates(first, size, ask.worker)
    local at = 0
    while at < #candidates and not full do
      at = at + 1
      look(candidates[at])
    end
    return next_at == 0 and at == #candidates and 0 or first + at, first + at
  end
  -- Behind the place from which the last one went on.
  local next_at, reached = window(0, from > 0 and 25 or math.max(100, ask.limit))
  if from > 0 and not full and next_at ~= 0 then next_at, reached = window(math.max(from, 25), math.max(100, ask.limit)) end
  local gone, value = #picked + #broken, nil
  if full then
    value = from > 0 and string.format('%d %d', from, now_ms) or kept
  elseif next_at ~= 0 then
    -- On its way still: the second counts from the end.
    value = string.format('%d %d', math.max(0, reached - gone), now_ms)
  elseif reached - gone > 100 then
    value = string.format('%d %d', reached - gone, since_ms)
  end
  return picked, broken, { field = field, kept = kept, value = value, more = full or next_at ~= 0 }
end
