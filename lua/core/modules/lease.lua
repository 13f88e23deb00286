-- Leases: the state of a token, the bounds of lease lengths, and how leases end.
-- RARELY free_slots, free_unique, hand_over, job_head, run_look, run_open, token_state
-- USES children/children: hand_over
--      core/envelope: error_ttl, job_head, pack_token, seal_unique, tombstone_of
--      core/history: note_end
--      core/job: free_unique
--      core/limit: free_slots
--      core/run: run_is_readable, run_look, run_open, run_read, run_write, runs_of
--      core/wake: notify_waiters

-- The state of a fencing token (rules 5 and 6): 'held'; 'repeated' with the outcome that ended it; or
-- 'stale', with `cancelled` if that was the reason. The third value is the names of the limits that a held
-- lease counts against. `job` is the opened envelope or tombstone of the same id; `fence` and `nonce` are
-- strings.
local function token_state(run, job, fence, nonce)
  if job and job.kind == 'T' then
    -- anchor: tombstone-knows-its-token
    if job.fence == fence and job.nonce == nonce then return 'repeated', job.outcome end
    return 'stale', job.outcome == 'cancelled' and 'cancelled' or '' -- anchor: cancelled-holder-is-told
  end
  -- A run that cannot be read holds no token, because the other items of the call must still end.
  local state = run_look(run, 'fence', 'nonce', 'limits')
  if job and state[1] == fence and state[2] == nonce then return 'held', '', state[3] end
  local ended = run_look(run, 'ended', 'outcome')
  -- anchor: last-ended-token-is-known
  if ended[1] == fence .. ':' .. nonce then return 'repeated', ended[2] end
  return 'stale', ''
end

-- The fields of `sweep` that note_lease compares with; an error is returned, not raised.
local function lease_lengths(sweep)
  return redis.pcall('HMGET', sweep, 'max_lease_ms', 'recent_lease_ms', 'least_lease_ms', 'recent_least_ms')
end

-- Record the lengths of the queue's longest and shortest lease, before a lease of this length is written
-- (rules 10 and 11). The `recent_` fields cover the time since a sweep last reset them. Without them, a
-- length that outlives its last user would delay reaping, or hide stalls, for ever. `lengths` is the result
-- of lease_lengths, or nil.
local function note_lease(sweep, lease_ms, lengths)
  local known = lengths or lease_lengths(sweep)
  local recent_ms, recent_least_ms = tonumber(known[2] or 0), tonumber(known[4] or 0)
  local shorter = recent_least_ms == 0 or recent_least_ms > lease_ms
  if recent_ms >= lease_ms and not shorter then return end
  local least_ms = tonumber(known[3] or 0)
  redis.call('HSET', sweep, 'max_lease_ms', math.max(tonumber(known[1] or 0), lease_ms), 'recent_lease_ms',
    math.max(recent_ms, lease_ms),
    'least_lease_ms', least_ms > 0 and math.min(least_ms, lease_ms) or lease_ms, 'recent_least_ms',
    shorter and lease_ms or recent_least_ms)
end

-- The last writes of a lease that ends while the job goes on: free its limit slots, leave `active`, clear the
-- token and record it as ended. lease: run, id, token, limits; `note`: the fields that error_note returns.
-- The wake lists to push are added to `wakes`. The index that takes the job over was written before, and
-- `active` is left before the token is cleared. If the script is cut off in between, the token still holds,
-- and the same call sent again does the rest (rule 1).
local function end_lease(prefix, lease, outcome, virtual_time, wakes, note, failures)
  local limited = lease.limits and lease.limits ~= ''
  if limited then free_slots(prefix, lease.limits, lease.id, virtual_time, wakes) end
  redis.call('ZREM', prefix .. 'active', lease.id)
  local fields = { 'nonce', '', 'ended', lease.token, 'outcome', outcome }
  -- In the same write as the token, because a repeated call must not charge the failure again.
  for _, field in ipairs(note or {}) do fields[#fields + 1] = field end
  if failures then fields[#fields + 1], fields[#fields + 2] = 'failures', failures end
  if limited then fields[#fields + 1], fields[#fields + 2] = 'limits', '' end
  run_write(lease.run, unpack(fields))
end

-- The fields of `run` that record why a run failed: the last error, and one more entry of the error history,
-- which keeps the last ten. An entry is time (ms), fence, kind (failed | lost), error, and behind a zero byte
-- the stack trace. They are written with the end of the token, so a repeated call records nothing twice.
local function error_note(run, now_ms, fence, kind, text, trace)
  local count = tonumber(run_read(run, 'errors')[1] or 0)
  return { 'error', text, 'errors', count + 1, 'e' .. count % 10,
    string.format('%d', now_ms) .. ' ' .. fence .. ' ' .. kind .. ' ' .. text .. '\0' .. trace }
end

-- Remove the leftovers of a job whose ending call was cut off: its `run`, and the unique key that the seal in
-- `run` names.
local function drop_run(prefix, id)
  local run = prefix .. 'run:' .. id
  if not run_is_readable(run) then return end
  local seal = run_read(run, 'seal')[1]
  if seal then free_unique(prefix, { unique = seal_unique(seal) }, id) end
  redis.call('DEL', run)
end

-- Keep the error with which a job has ended as its result. `job` is the opened envelope. `fed`: others need
-- it, and may read it however late they run (release_results). `mark`: '' for a dead job, else a member more.
local function keep_error(prefix, id, job, now_ms, reason, fed, mark)
  local ttl_ms = error_ttl(prefix, id, job)
  if ttl_ms <= 0 then return end
  local record = string.format('{"ok":false,%s"ended_ms":%d,"error":%s}', mark, now_ms, cjson.encode(reason))
  if fed then redis.call('ZADD', prefix .. 'keeping', 'NX', now_ms, id) end
  redis.call('SET', prefix .. 'result:' .. id, record, 'PXAT',
    string.format('%d', now_ms + ttl_ms + (fed and KEPT_MS or 0)))
end

-- Make a job a dead letter. Its envelope stays, so that it can be inspected and requeued; `run` holds the
-- reason. Its unique key comes free, the reason becomes its result, and callers that wait for its end are
-- woken. The next sweep handles jobs that need it (rule 25); they may read the reason however late they run
-- (release_results). `job` is the opened envelope; `failures`: their number where the run has not been told
-- of the last one. Returns whether there are such jobs, or callbacks.
local function bury_job(prefix, job, id, now_ms, events, reason, failures)
  note_end(prefix, events, id, 'dead', now_ms, reason, failures)
  local fed = redis.call('SISMEMBER', prefix .. 'feeding', id) == 1
  -- Not before its last requeue, even if the clock stepped back, because older entries count as leftovers of
  -- that (requeue.lua).
  local requeued_ms = tonumber(run_look(prefix .. 'run:' .. id, 'requeued_ms')[1] or 0)
  redis.call('ZADD', prefix .. 'dead', math.max(now_ms, requeued_ms), id)
  redis.call('HINCRBY', prefix .. 'stats', 'buried', 1)
  keep_error(prefix, id, job, now_ms, reason, fed, '')
  free_unique(prefix, job, id) -- anchor: dead-job-frees-its-unique-key
  if fed then redis.call('ZADD', prefix .. 'handing', now_ms, '-' .. id) end
  notify_waiters(prefix, id)
  if events then table.insert(events, { 'buried', id, job.name, reason }) end
  return fed
end

-- A finish works on `items`: prefix, keys_at, arguments_at, count, feeding (whether any job waits for another
-- one), and of each item by its number: seals, for a held token; limits, the names in its run; leaves, true
-- where its lease ends now.

-- The states of the tokens. Returns results and outcomes of the items, and how many end.
local function token_states(items)
  local prefix, keys_at, arguments_at = items.prefix, items.keys_at, items.arguments_at
  local seals, limits, leaves = items.seals, items.limits, items.leaves
  local active, id_at, reply, ended, finished = prefix .. 'active', #prefix + 5, {}, {}, 0
  local runs_there, token, last_fence, last_nonce = runs_of(keys_at + 1, items.count), nil, nil, nil
  for at = 1, items.count do
    local job_key, run_key = KEYS[keys_at + 2 * at - 2], KEYS[keys_at + 2 * at - 1]
    local fence, nonce = ARGV[arguments_at + 2 * at - 2], ARGV[arguments_at + 2 * at - 1]
    local run, outcome, state = runs_there[at], ''
    -- The jobs of one claim share its token.
    if fence ~= last_fence or nonce ~= last_nonce then
      token, last_fence, last_nonce = fence .. ' ' .. nonce .. ' ', fence, nonce
    end
    if run and string.sub(run, 1, #token) == token then -- anchor: fence-checked
      local seal_size, owner_size = string.byte(run, #token + 1, #token + 2)
      state, seals[at] = 'held', string.sub(run, #token + 3, #token + 2 + seal_size)
      if #run > #token + 2 + seal_size + owner_size then limits[at] = run_open(run_key).limits end
    else
      local job = job_head(job_key)
      state, outcome = token_state(run_key, job, fence, nonce)
    end
    -- If a token comes twice in one call, the second one repeats the first.
    if ended[job_key] then state, outcome = 'repeated', 'finished' end
    if state == 'held' then
      ended[job_key] = true
      state, outcome, leaves[at] = 'ok', 'finished', true
      finished = finished + 1
    elseif outcome == 'finished' and not ended[job_key]
        and redis.call('ZSCORE', active, string.sub(job_key, id_at)) then
      -- A finish that was cut off after writing the tombstone has left the lease behind.
      leaves[at], limits[at] = true, run_look(run_key, 'limits')[1]
    end
    reply[2 * at - 1], reply[2 * at] = state, outcome
  end
  return reply, finished
end

-- Store the results of the jobs that end now, before their tombstones: after a cut-off in between the token
-- still holds. The next copy writes both.
local function store_results(items, results, now_ms)
  local prefix, keys_at, arguments_at, count = items.prefix, items.keys_at, items.arguments_at, items.count
  local seals, leaves, feeding, id_at = items.seals, items.leaves, items.feeding, #prefix + 5
  for at = 1, results do
    local result_at = arguments_at + 2 * count + 3 * at - 3
    local item = tonumber(ARGV[result_at])
    if leaves[item] and seals[item] then -- anchor: only-the-holder-keeps-a-result
      local record = '{"ok":true,"ended_ms":' .. string.format('%d', now_ms) .. ',"fence":'
        .. ARGV[arguments_at + 2 * item - 2] .. ','
      -- anchor: results-live-for-their-full-time
      local until_ms, id = now_ms + tonumber(ARGV[result_at + 1]), string.sub(KEYS[keys_at + 2 * item - 2], id_at)
      -- Kept for jobs that wait for it, however late they run (release_results).
      local waited_for = feeding and redis.call('SISMEMBER', prefix .. 'feeding', id) == 1
      if waited_for then -- anchor: parents-result-is-kept-for-waiting-children
        redis.call('ZADD', prefix .. 'keeping', 'NX', now_ms, id)
        until_ms = until_ms + KEPT_MS
      end
      -- anchor: each-result-is-stored-with-its-job
      redis.call('SET', KEYS[keys_at + 2 * count + at - 1], record .. ARGV[result_at + 2], 'PXAT', string.format('%d', until_ms))
    end
  end
end

-- Write the tombstones of the jobs that end now, and free what they hold. Returns their ids, the keys of
-- their runs, and times and ids for `done`.
local function write_tombstones(items, now_ms, virtual_time, wakes, events)
  local prefix, keys_at, arguments_at = items.prefix, items.keys_at, items.arguments_at
  local seals, limits, leaves, feeding = items.seals, items.limits, items.leaves, items.feeding
  local id_at = #prefix + 5
  local ids, runs, dated, last = {}, {}, {}, {}
  for at = 1, items.count do
    if leaves[at] then
      local job_key, seal = KEYS[keys_at + 2 * at - 2], seals[at]
      local id = string.sub(job_key, id_at)
      if seal then
        if events and events.keep then
          local job = job_head(job_key)
          table.insert(events, { 'finished', id, job and job.name })
        end
        note_end(prefix, events, id, 'finished', now_ms) -- anchor: finished-job-is-in-the-history
        local fence, nonce = ARGV[arguments_at + 2 * at - 2], ARGV[arguments_at + 2 * at - 1]
        local until_ms, length = struct.unpack('>I6B', seal)
        -- The jobs of one claim share its token, and most of them have no enqueue nonce.
        if length > 0 or not last.plain or fence ~= last.fence or nonce ~= last.nonce then
          if nonce ~= last.nonce then last.mark, last.token = pack_token(nonce) end
          last.fence, last.nonce = fence, nonce
          last.stone = tombstone_of(1, string.sub(seal, 8, 7 + length), tonumber(fence), last.mark,
            last.token)
          last.plain = length == 0
        end
        -- anchor: tombstone-outlives-late-copies
        redis.call('SET', job_key, last.stone, 'PXAT', math.max(until_ms, now_ms) + LATE_COPY_MS)
        -- anchor: finished-job-frees-its-unique-key
        if #seal > 7 + length then free_unique(prefix, { unique = string.sub(seal, 8 + length) }, id) end
        dated[#dated + 1], dated[#dated + 2] = now_ms, id
      end
      if limits[at] then free_slots(prefix, limits[at], id, virtual_time, wakes) end
      ids[#ids + 1], runs[#runs + 1] = id, KEYS[keys_at + 2 * at - 1]
      -- anchor: children-are-told-of-the-end
      if feeding and redis.call('SISMEMBER', prefix .. 'feeding', id) == 1 then redis.call('ZADD', prefix .. 'handing', now_ms, '+' .. id) end
    end
  end
  return ids, runs, dated
end

-- End leases as finished: the envelope becomes a tombstone that outlives every late copy of the calls
-- (rules 3 and 5). Limit slots and unique keys come free. Item number `at` is KEYS job:<id> and run:<id>
-- from `keys_at` on, and ARGV fence and nonce from `arguments_at` on. Result number `at` is KEYS result:<id>
-- after the items, and ARGV number of its item, ttl_ms and the record from took_ms on. `waits_ms`: until this
-- time a caller may wait for the end of a job.
-- Returns 2 values per item, result (ok | repeated | stale) and outcome; only their number if all are ok. The
-- wake lists to push are added to `wakes`. Then up to 100 jobs that waited for the finished ones are handled
-- (rule 25); the second value is true while more are left. The third one is true if anything but the jobs
-- themselves may have changed: lanes, and jobs that wait. `feeding`: whether any job waits for another one.
local function finish_jobs(prefix, keys_at, arguments_at, now_ms, virtual_time, wakes, events, waits_ms,
    feeding)
  -- An item has 2 KEYS and 2 ARGV, a result 1 and 3.
  local results = (#ARGV - arguments_at - #KEYS + keys_at) / 2
  local count = (#KEYS - keys_at + 1 - results) / 2
  for _, zset in ipairs(feeding and { 'handing', 'blocked', 'due', 'dead', 'keeping' } or {}) do
    redis.call('ZCARD', prefix .. zset)
  end
  local items = { prefix = prefix, keys_at = keys_at, arguments_at = arguments_at, count = count,
    feeding = feeding, seals = {}, limits = {}, leaves = {} }
  local reply, finished = token_states(items)
  store_results(items, results, now_ms)
  local ids, runs, dated = write_tombstones(items, now_ms, virtual_time, wakes, events)
  -- anchor: every-finished-job-is-listed
  for at = 1, #dated, PIECE do redis.call('ZADD', prefix .. 'done', unpack(dated, at, math.min(at + PIECE - 1, #dated))) end
  -- `active` is left last: if the script is cut off and the call is not repeated, a sweep still finds the
  -- rest.
  for at = 1, #ids, PIECE do -- anchor: every-finished-lease-ends
    redis.call('DEL', unpack(runs, at, math.min(at + PIECE - 1, #ids)))
    redis.call('ZREM', prefix .. 'active', unpack(ids, at, math.min(at + PIECE - 1, #ids)))
  end
  if finished > 0 then redis.call('HINCRBY', prefix .. 'stats', 'finished', finished) end
  local more = feeding and hand_over(prefix, now_ms, virtual_time, 100, wakes, events)
  if waits_ms and tonumber(waits_ms) > now_ms then
    for at = 2, #dated, 2 do notify_waiters(prefix, dated[at]) end
  end
  return finished == count and count or reply, more, feeding or next(items.limits) ~= nil
end
