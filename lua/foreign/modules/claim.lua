-- Claims on a foreign format: scans for jobs, and the leases that the engine keeps in its own keys beside the
-- format's.
-- USES <format>: wire_candidates, wire_due, wire_locked, wire_mine, wire_paused, wire_promote, wire_read,
--        wire_refuses, wire_scanned, wire_set_aside, wire_take
--      core/claim: is_paused
--      core/lease: note_lease
--      core/limit: count_leases, limit_room
--      core/wake: wake_push
--      foreign/format: not_for
--      foreign/ids: nameable, record_of, shown_id, words_of

-- Fields of `run:<id>` or of another hash of the engine, as HMGET gives them. A key of another type has none,
-- and `err` is the server's error. It belongs to another program, and must not block other jobs.
local function own_words(run, ...)
  local words = redis.pcall('HMGET', run, ...)
  if words.err and string.sub(words.err, 1, 9) ~= 'WRONGTYPE' then error(words) end
  return words
end

-- Write fields of `run:<id>`, which is kept until `until_ms`. A key of another type stays as it is.
local function own_note(run, until_ms, ...)
  if own_words(run, 'fence').err then return end
  redis.call('HSET', run, ...)
  redis.call('PEXPIREAT', run, string.format('%d', until_ms))
end

-- A number of a run; 0 for any other text, because another program may have written it.
local function own_number(word)
  local number = tonumber(word or nil)
  return number and number == number and math.abs(number) <= 9007199254740992 and number or 0
end

-- The state of a fencing token (rules 5 and 6): 'held'; 'repeated' with the outcome that ended it; or
-- 'stale', with `cancelled` if that was the reason. A lease that a foreign client has taken over is not held.
-- The third value is the run: limits, ending, value, took_ms, error. The fourth is the end of the lease (ms),
-- nil if the job is not in `active`. The fifth is true for a stale token whose lease a foreign client has
-- taken over, until a call ends it.
local function foreign_token(prefix, format, id, fence, nonce)
  local key = prefix .. 'run:' .. id
  local words = own_words(key, 'fence', 'nonce', 'ended', 'outcome', 'limits', 'ending', 'value', 'took_ms',
    'error')
  local run = { limits = words[5] or '', ending = words[6] or '', value = words[7], took_ms = words[8],
    error = words[9] }
  local token, deadline_ms = fence .. ':' .. nonce,
    tonumber(redis.call('ZSCORE', prefix .. 'active', id) or nil)
  -- anchor: foreign-token-is-checked, 2 lines
  local listed = words[1] == fence and words[2] == nonce and deadline_ms
  if listed and wire_mine(format, id, token) then return 'held', '', run, deadline_ms end
  -- anchor: foreign-end-is-recognized-when-repeated
  if words[3] == token then return 'repeated', words[4] or '', run, deadline_ms end
  return 'stale', words[4] == 'cancelled' and 'cancelled' or '', run, deadline_ms, listed and true
end

-- The jobs that an earlier copy of this claim leased and still holds (rule 4). Returns kind and jobs, 7
-- values each; kind is nil if there was no earlier copy. The ids that it set aside are added to `corrupt`.
local function foreign_known(prefix, format, record, nonce, counter, corrupt)
  local words, jobs = words_of(redis.call('GET', record)), {}
  if not words[1] or tonumber(words[1]) < tonumber(counter) then return nil, jobs end
  if words[1] ~= counter then return 'stale', jobs end
  for at = 2, #words, 2 do
    local id, fence = words[at], words[at + 1]
    if fence == 'corrupt' then
      corrupt[#corrupt + 1] = id
    else
      local state, _, _, deadline_ms = foreign_token(prefix, format, id, fence, nonce)
      local job = state == 'held' and wire_read(format, id)
      if job and job.kind == 'J' then
        local run = redis.call('HMGET', prefix .. 'run:' .. id, 'claims', 'crashes')
        for _, field in ipairs({ id, tonumber(fence), deadline_ms, own_number(run[1]), job.failures,
            own_number(run[2]), job.body }) do
          jobs[#jobs + 1] = field
        end
      end
    end
  end
  return 'repeated', jobs
end

-- Promote due jobs, first in, first out among equal times. Returns how many, and the ids without a job. The
-- ids that are about to move are recorded first. After a call that was cut off, the next one knows which jobs
-- may be in two places, and checks before it adds.
local function foreign_promote(prefix, format, most)
  local promoted, corrupt, ids, moving, was = 0, {}, wire_due(format, most), prefix .. 'moving', {}
  for _, id in ipairs(redis.call('SMEMBERS', moving)) do was[id] = true end
  if #ids == 0 and not next(was) then return 0, corrupt end
  for at = 1, #ids, PIECE do redis.call('SADD', moving, unpack(ids, at, math.min(at + PIECE - 1, #ids))) end
  for _, id in ipairs(ids) do
    if wire_promote(format, id, was[id]) == false then
      corrupt[#corrupt + 1] = shown_id(id)
      redis.call('HINCRBY', prefix .. 'stats', 'aside', 1)
    else
      promoted = promoted + 1
    end
  end
  redis.call('DEL', moving)
  return promoted, corrupt
end

-- The room that pauses and limits leave for jobs of a name; a scan reads each once. `scan`: as in
-- foreign_scan
local function room_of(scan, name)
  local prefix, format, now_ms = scan.prefix, scan.format, scan.now_ms
  if scan.rooms[name] == nil then
    local definition = scan.some_limits and redis.call('HGET', prefix .. 'limits', 'n:' .. name)
    local room, ahead = math.huge, nil
    -- A format with its own rates counts them itself.
    if definition and format.counts_rates then
      definition = string.gsub(definition, '^(%d+) %d+', '%1 0')
    end
    if definition then
      local _
      room, _, ahead = limit_room(prefix, 'n:' .. name, definition, now_ms)
    end
    if (scan.some_paused and is_paused(prefix .. 'paused', name, now_ms))
        or wire_paused(format, name) then
      room = 0
    end
    scan.rooms[name] = { room = room, limit = definition and 'n:' .. name, definition = definition or nil,
      ahead = ahead }
  end
  return scan.rooms[name]
end

-- The job of a candidate, nil where this worker cannot have it now. The second value says why it can never
-- run.
local function waiting_job(scan, id)
  local format, ask = scan.format, scan.ask
  -- What is no text stays where it is, and is listed as unreadable.
  if not nameable(id) then return nil, id == '' and 'it has no id' or nil end
  local job = wire_read(format, id)
  if not job or job.kind ~= 'J' then return nil, job and job.why or 'there is no job behind this id' end
  if not ask.classes[job.name] or room_of(scan, job.name).room <= 0 then return nil end
  if not_for(job, ask.worker, format) or wire_locked(format, id) then return nil end
  local refused, never = wire_refuses(format, job, id)
  if never or refused then return nil, never or nil end
  return job
end

-- Pick a candidate, or set it apart as broken, or pass it over.
local function look_at_candidate(scan, candidate)
  local id, prefix, picked = candidate.id, scan.prefix, scan.picked
  if scan.seen[id] then return end
  scan.seen[id] = true
  local job, broken = waiting_job(scan, id)
  local run = job and own_words(prefix .. 'run:' .. id, 'fence', 'nonce', 'claims', 'crashes') or {}
  if run.err then
    broken = 'the key of its run is of another type'
  -- 2^53 - 1: beyond it two fences could be equal, as Lua has no odd numbers there (rule 6).
  elseif (tonumber(run[1] or nil) or 0) >= EXACT_MAX then
    broken = 'fences exhausted at 2^53'
  end
  if broken then scan.broken[#scan.broken + 1] = { id = id, place = candidate.place, why = broken } end
  if broken or not job then return end
  local crashes = own_number(run[4])
  if crashes > 0 and scan.crashed >= scan.ask.crashed_max then return end
  -- A second entry of a job that is running is passed over.
  local held = run[2] and run[2] ~= '' and redis.call('ZSCORE', prefix .. 'active', id)
  if held and wire_mine(scan.format, id, run[1] .. ':' .. run[2]) then return end
  local size = 0
  for _, part in ipairs(type(job.body) == 'table' and job.body or { job.body }) do size = size + #part end
  if #picked > 0 and scan.bytes + size > REPLY_BYTES then
    scan.full = true
    return
  end
  scan.bytes, scan.crashed = scan.bytes + size, scan.crashed + (crashes > 0 and 1 or 0)
  local room = scan.rooms[job.name]
  room.room = room.room - 1
  picked[#picked + 1] = { id = id, job = job, place = candidate.place, room = room,
    known = run[1] and true or false,
    -- anchor: foreign-fences-only-grow
    fence = math.max(own_number(run[1]) + 1, scan.now_ms), claims = own_number(run[3]) + 1, crashes = crashes }
  if #picked >= scan.ask.most then scan.full = true end
end

-- Look at the candidates of a window. Returns where the next one begins, 0 at the end of the waiting jobs,
-- and where this one has ended.
local function scan_window(scan, first, size)
  local candidates, next_at = wire_candidates(scan.format, first, size, scan.ask.worker)
  local at = 0
  while at < #candidates and not scan.full do
    at = at + 1
    look_at_candidate(scan, candidates[at])
  end
  return next_at == 0 and at == #candidates and 0 or first + at, first + at
end

-- Find jobs that this worker may claim now; reads only. It reads the head of the waiting jobs, and a window
-- that starts where the worker's last claim ended. So no job starves behind jobs for other workers.
-- Returns the picked jobs, candidates that cannot run, and the position to store: { field, value or nil where
-- the next scan begins at the head, more = jobs may be left behind the window }.
-- ask: classes (name -> true), key (equal for workers that may take the same jobs), most, crashed_max,
-- worker
local function foreign_scan(prefix, format, ask, now_ms)
  local field = redis.sha1hex(ask.key)
  local kept = redis.call('HGET', prefix .. 'scan', field)
  local from, since_ms = string.match(kept or '', '^(%d+) (%d+)$')
  from, since_ms = tonumber(from or 0), math.min(tonumber(since_ms or now_ms), now_ms)
  -- At the end of the waiting jobs only new ones are read. A full scan once a second finds jobs that came in
  -- before that position.
  if from > 0 and now_ms - since_ms >= 1000 then from, since_ms = 0, now_ms end
  local scan = { prefix = prefix, format = format, ask = ask, now_ms = now_ms,
    some_paused = redis.call('HLEN', prefix .. 'paused') > 0,
    some_limits = redis.call('HLEN', prefix .. 'limits') > 0,
    picked = {}, broken = {}, seen = {}, rooms = {}, bytes = 0, crashed = 0, full = false }
  -- Go on from where the last scan stopped.
  local next_at, reached = scan_window(scan, 0, from > 0 and 25 or math.max(100, ask.most))
  if from > 0 and not scan.full and next_at ~= 0 then
    next_at, reached = scan_window(scan, math.max(from, 25), math.max(100, ask.most))
  end
  local gone, value = #scan.picked + #scan.broken, nil
  if scan.full then
    value = from > 0 and string.format('%d %d', from, now_ms) or kept
  elseif next_at ~= 0 then
    -- The scan is not at the end yet: the second begins when it is.
    value = string.format('%d %d', math.max(0, reached - gone), now_ms)
  elseif reached - gone > 100 then
    value = string.format('%d %d', reached - gone, since_ms)
  end
  return scan.picked, scan.broken,
    { field = field, kept = kept, value = value, more = scan.full or next_at ~= 0 }
end

-- Lease up to `ask.most` jobs under (fence, nonce). Returns kind, jobs (7 values each), and the ids that
-- were set aside.
-- keys: sweep, active, stats, record ask: the fields of foreign_scan, and incarnation, counter, lease_ms,
-- not_after_ms, owner
local function foreign_claim(prefix, format, keys, ask, now_ms, events)
  local nonce, corrupt = ask.incarnation .. ':' .. ask.counter, {}
  -- anchor: foreign-claim-is-recognized-when-repeated
  local known, jobs = foreign_known(prefix, format, keys.record, nonce, ask.counter, corrupt)
  if known then return known, jobs, corrupt end
  if now_ms > ask.not_after_ms then return 'void', jobs, corrupt end -- anchor: late-foreign-claim-is-void

  local picked, broken, scan = foreign_scan(prefix, format, ask, now_ms)
  local until_ms, leases, counted = now_ms + ask.lease_ms, { ask.counter }, {}
  if #picked > 0 then note_lease(keys.sweep, ask.lease_ms) end
  for _, one in ipairs(picked) do
    local run, fence = prefix .. 'run:' .. one.id, string.format('%d', one.fence)
    local lease = { token = fence .. ':' .. nonce, fence = fence, nonce = nonce, until_ms = until_ms,
      lease_ms = ask.lease_ms, owner = ask.owner }
    -- The engine's keys are written before the wire. If the call is cut off in between, the job still waits
    -- on the wire, where the token has no effect.
    redis.call('HSET', run, 'fence', fence, 'nonce', nonce, 'owner', ask.owner, 'claims', one.claims,
      'renewal', 0, 'ending', '', 'limits', one.room.limit or '')
    if one.known then redis.call('PERSIST', run) end
    redis.call('ZADD', keys.active, until_ms, one.id)
    if wire_take(format, one.id, one.job, one.place, lease) == false then
      redis.call('ZREM', keys.active, one.id)
      redis.call('HSET', run, 'nonce', '', 'limits', '')
      redis.call('PEXPIREAT', run, string.format('%d', now_ms + LATE_COPY_MS))
    else
      leases[#leases + 1], leases[#leases + 2] = one.id, fence
      for _, field in ipairs({ one.id, one.fence, until_ms, one.claims, one.job.failures or 0, one.crashes,
          one.job.body }) do
        jobs[#jobs + 1] = field
      end
      if one.room.limit then
        local group = counted[one.room.limit] or { limit = one.room, ids = {}, fences = {}, costs = {} }
        group.ids[#group.ids + 1], group.fences[#group.fences + 1], group.costs[#group.costs + 1] = one.id,
          fence, 1
        counted[one.room.limit] = group
      end
      if events then table.insert(events, { 'claimed', one.id, one.job.name, ask.owner }) end
    end
  end
  for _, group in pairs(counted) do count_leases(prefix, group.limit, group, until_ms, now_ms) end
  for _, one in ipairs(broken) do
    wire_set_aside(format, one.id, one.place, one.why)
    corrupt[#corrupt + 1] = shown_id(one.id)
    redis.call('HINCRBY', keys.stats, 'aside', 1)
    if events then table.insert(events, { 'buried', corrupt[#corrupt], '', one.why }) end
  end
  wire_scanned(format)
  if scan.value ~= (scan.kept or nil) then
    if scan.value then
      redis.call('HSET', prefix .. 'scan', scan.field, scan.value)
    else
      redis.call('HDEL', prefix .. 'scan', scan.field)
    end
    redis.call('PEXPIRE', prefix .. 'scan', 60000)
  end
  if scan.more then wake_push(prefix .. 'wake') end
  for _, id in ipairs(corrupt) do leases[#leases + 1], leases[#leases + 2] = id, 'corrupt' end
  redis.call('SET', keys.record, record_of(leases), 'PXAT',
    string.format('%d', math.max(ask.not_after_ms, until_ms) + ask.lease_ms))
  return #jobs > 0 and 'leased' or 'empty', jobs, corrupt
end
