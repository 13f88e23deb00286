-- Jobs: their states, how they are made, how admin actions and retention end them, and the keys that keep
-- duplicates out.
-- USES children/children: forget_lacked, leave_dead, release_results
--      core/envelope: envelope_options, envelope_start, envelope_target, job_head, pack_token, seal_of,
--        seal_unique, tombstone_of
--      core/history: note_end
--      core/lane: due_member, some_lanes, to_lane
--      core/limit: free_slots
--      core/run: run_is_readable, run_look, run_note
--      core/wake: note_class, notify_settings, notify_waiters, notify_workers

-- The state of a job and its last fence. `job` is its opened envelope; nil when the job is gone.
local function job_state(prefix, job, id)
  if not job then return 'gone', 0 end
  if job.kind == 'T' then return job.outcome, tonumber(job.fence) end
  local fence = tonumber(run_look(prefix .. 'run:' .. id, 'fence')[1] or 0)
  if redis.call('ZSCORE', prefix .. 'active', id) then return 'active', fence end
  if redis.call('ZSCORE', prefix .. 'dead', id) then return 'dead', fence end
  local delayed = job.kind == 'J' and redis.call('ZSCORE', prefix .. 'due', due_member(job.sequence, id))
  if delayed then return 'delayed', fence end
  return redis.call('ZSCORE', prefix .. 'blocked', id) and 'blocked' or 'waiting', fence
end

-- How a job in `done` has ended, and when (ms): `finished`, or `skipped` where half a millisecond is added.
local function done_as(prefix, id)
  local at_ms = tonumber(redis.call('ZSCORE', prefix .. 'done', id) or nil)
  return at_ms and (at_ms % 1 > 0 and 'skipped' or 'finished'), at_ms
end

-- The state of a job for monitoring: job_state, or done_as if only its entry in `done` is left. `job` is its
-- opened envelope.
local function state_of(prefix, job, id)
  local state, fence = job_state(prefix, job, id)
  if state == 'rejected' or state == 'orphaned' then state = 'gone' end
  if state == 'gone' then state = done_as(prefix, id) or 'gone' end
  return state, fence
end

-- One page of the jobs in a state, in its order or, with `newest`, from its end. Each has its id, the zset
-- and the member of its index entry, and its score. Waiting jobs come lane by lane, the others by time.
-- `stuck` are active jobs whose lease has expired.
local function jobs_in(prefix, state, offset, limit, newest, now_ms)
  local found, digits = {}, state == 'delayed' and 11 or 1
  local function take(key, words)
    local flat = redis.call('ZRANGE', key, unpack(words))
    for at = 1, #flat, 2 do
      found[#found + 1] = { id = string.sub(flat[at], digits), key = key, member = flat[at],
        score = tonumber(flat[at + 1]) }
    end
  end
  if state == 'stuck' then
    local before = '(' .. string.format('%d', now_ms)
    local range = newest and { before, '-inf', 'BYSCORE', 'REV' } or { '-inf', before, 'BYSCORE' }
    for _, word in ipairs({ 'LIMIT', offset, limit, 'WITHSCORES' }) do range[#range + 1] = word end
    take(prefix .. 'active', range)
    return found
  end
  local function page_of(key)
    local size = redis.call('ZCARD', key)
    if offset < size then
      local range = { offset, offset + limit - #found - 1 }
      if newest then range[3] = 'REV' end
      range[#range + 1] = 'WITHSCORES'
      take(key, range)
    end
    offset = math.max(0, offset - size)
  end
  if state ~= 'waiting' then
    page_of(prefix .. (({ delayed = 'due', finished = 'done' })[state] or state))
    return found
  end
  local cursor = ''
  repeat
    local lanes
    lanes, cursor = some_lanes(prefix, cursor)
    for _, lane in ipairs(lanes) do
      page_of(prefix .. 'lane:' .. lane)
      if #found >= limit then return found end
    end
  until cursor == ''
  return found
end

-- Record when a job expires, by its options (rule 38).
local function note_expiry(prefix, job, id, options)
  local expires_ms = options and tonumber(options.expires_ms)
  if expires_ms then
    redis.call('ZADD', prefix .. 'expiring', job.enqueued_ms + expires_ms, due_member(job.sequence, id))
  end
end

-- Enqueue a job of a schedule, or a callback, into its lane. `sealed` is its envelope with sequence and time
-- of zero, `job` the same opened. Writes come in the order of enqueue.lua: the index entry first, then the
-- job together with its unique key. `more`: further words of that write.
local function make_job(prefix, id, sealed, job, now_ms, virtual_time, wakes, events, more)
  job.sequence = redis.call('INCR', prefix .. 'seq')
  if redis.call('HEXISTS', prefix .. 'classes', job.class) == 0 then
    note_class(prefix, prefix .. 'classes', job.class, envelope_target(sealed), now_ms)
  end
  local wake = to_lane(prefix, id, job, virtual_time)
  local size = string.byte(sealed) < 176 and 1 or 2
  local start = envelope_start(string.sub(sealed, 1, size), job.sequence, now_ms, 0, now_ms)
  local words = { prefix .. 'job:' .. id, start .. string.sub(sealed, size + 10) }
  if job.unique then words[3], words[4] = prefix .. 'unique:' .. job.unique, id end
  for _, word in ipairs(more or {}) do words[#words + 1] = word end
  if job.options_at then
    note_expiry(prefix, { sequence = job.sequence, enqueued_ms = now_ms }, id, envelope_options(sealed))
  end
  redis.call('MSET', unpack(words))
  if wake then wakes[wake] = true end
  if events then table.insert(events, { 'created', id, job.name, 'waiting' }) end
end

-- End a job by an admin action (rule 26). Its token is revoked first. Then a tombstone that outlives every
-- late copy replaces its envelope (rule 3), its limit slots and keys come free, and its index entries go
-- last. If the script is cut off in between, the claim, promotion or sweep that finds such an entry meets the
-- tombstone and drops it. job: the result of envelope_open; ending: outcome (2 discarded, 7 cancelled, 8
-- expired), op_id, not_after_ms; the wake lists to push are added to `wakes`.
local function end_job(prefix, job, id, ending, now_ms, virtual_time, wakes, events)
  local run, active = prefix .. 'run:' .. id, prefix .. 'active'
  local kept, readable = run_look(run, 'fence', 'limits', 'seal', 'nonce', 'owner'), run_is_readable(run)
  local held = redis.call('ZSCORE', active, id)
  local outcome = ({ [7] = 'cancelled', [8] = 'expired' })[ending.outcome] or 'discarded'
  note_end(prefix, events, id, outcome, now_ms)
  if held then run_note(run, 'nonce', '') end -- anchor: cancel-revokes-the-lease
  -- If this call is cut off, the seal names the unique key that a later cleanup must free (drop_run).
  if job.unique and not kept[3] then
    run_note(run, 'seal', seal_of(job.not_after_ms, job.enqueue_nonce, job.unique))
  end
  -- A key of another type stays, because it belongs to another program.
  if job.kind ~= 'T' and (job.kind == 'J' or redis.call('TYPE', prefix .. 'job:' .. id).ok == 'string') then
    local tombstone = tombstone_of(ending.outcome, job.enqueue_nonce or '', tonumber(kept[1] or 0),
      pack_token(ending.op_id))
    redis.call('SET', prefix .. 'job:' .. id, tombstone, 'PXAT',
      math.max(job.not_after_ms or 0, ending.not_after_ms, now_ms) + LATE_COPY_MS)
  end
  -- If an earlier copy was cut off after it ended the job, only the seal still has the key.
  local key = job.unique or kept[3] and seal_unique(kept[3]) or nil
  free_unique(prefix, { unique = key }, id)
  -- The next sweep handles jobs that wait for it (rule 25). A job that is ended by hand makes no callback,
  -- and a dead one has made its own.
  if redis.call('SISMEMBER', prefix .. 'feeding', id) == 1 then
    if job.kind == 'J' and ending.outcome ~= 8 and not redis.call('ZSCORE', prefix .. 'dead', id) then
      redis.call('DEL', prefix .. 'calls:' .. string.format('%d', job.sequence))
    end
    redis.call('ZADD', prefix .. 'handing', now_ms, '-' .. id)
  end
  if kept[2] and kept[2] ~= '' then free_slots(prefix, kept[2], id, virtual_time, wakes) end
  if readable then redis.call('DEL', run) end
  -- That a job needs others is one of its options.
  if job.options_at then forget_lacked(prefix, id) end
  redis.call('DEL', prefix .. 'result:' .. id, prefix .. 'needs:' .. id, prefix .. 'lacks:' .. id,
    prefix .. 'lost:' .. id)
  redis.call('ZREM', prefix .. 'blocked', id)
  if job.kind == 'J' then
    redis.call('ZREM', prefix .. 'due', due_member(job.sequence, id))
    redis.call('ZREM', prefix .. 'lane:' .. job.lane, id)
    redis.call('ZREM', prefix .. 'expiring', due_member(job.sequence, id))
  end
  redis.call('ZREM', active, id)
  redis.call('ZREM', prefix .. 'dead', id)
  notify_waiters(prefix, id)
  -- A copy that completes a call that was cut off finds no nonce any more, so the holder learns of it by its
  -- renewal.
  if held and ending.outcome == 7 and (kept[4] or '') ~= '' then
    -- anchor: cancel-is-published
    notify_workers(prefix, kept[5] or '', 'cancelled ' .. kept[1] .. ' ' .. kept[4] .. ' ' .. id)
  end
  if job.kind ~= 'T' and ending.outcome == 8 then redis.call('HINCRBY', prefix .. 'stats', 'expired', 1) end
  if job.kind ~= 'T' and events then
    table.insert(events, { outcome, id, job.name })
  end
end

-- Whether no worker has started a job, by fields of its `run`: fence, claims, and how many claims in a row
-- were given back.
local function never_started(fence, claims, unstarted)
  return not fence or claims == unstarted -- anchor: older-engines-starts-count
end

-- Expire a job that no worker has started in time (rule 38). It ends as by an admin action.
local function expire_job(prefix, job, id, now_ms, virtual_time, wakes, events)
  end_job(prefix, job, id, { outcome = 8, op_id = 'expired', not_after_ms = now_ms }, now_ms, virtual_time,
    wakes, events)
end

-- Expire jobs that no worker has started in time, at most `most`, the earliest first (rule 38). An entry of
-- `expiring` begins with the sequence of its job, as in `due`. So a leftover of an enqueue that was cut off
-- matches no later job of that id. The claim that starts a job removes its entry. If an older engine has not
-- removed it, the job is left alone. Returns how many entries were handled.
local function expire_due(prefix, now_ms, most, virtual_time, wakes, events)
  local expiring = prefix .. 'expiring'
  local found = redis.call('ZRANGE', expiring, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, most)
  for _, member in ipairs(found) do
    local id = string.sub(member, 11)
    local job = job_head(prefix .. 'job:' .. id)
    local kind = job and job.kind
    local ends = kind == 'J' and due_member(job.sequence, id) == member
      and never_started(unpack(run_look(prefix .. 'run:' .. id, 'fence', 'claims', 'unstarted')))
      and not redis.call('ZSCORE', prefix .. 'active', id) and not redis.call('ZSCORE', prefix .. 'dead', id)
    -- Or an earlier call was cut off when it had ended the job.
    if ends or kind == 'T' and job.outcome == 'expired' then
      expire_job(prefix, job, id, now_ms, virtual_time, wakes, events)
    end
    redis.call('ZREM', expiring, member)
  end
  return #found
end

-- Retention: trim `done` and the dead letters to their count and age. A call removes at most 5,000 entries,
-- and discards at most 50 dead jobs, the oldest first. `kept`: done_max, done_age_ms, dead_max and
-- dead_age_ms of the settings, nil if not set; `sizes`: how many jobs are in done and in dead. Returns
-- whether more are over the bounds.
local function apply_retention(prefix, kept, sizes, done_max, now_ms, virtual_time, wakes, events)
  local dead = prefix .. 'dead'
  local function over_bounds(state, most, age_ms)
    local over = sizes[state] - most
    if not age_ms or sizes[state] == 0 then return over end
    return math.max(over, redis.call('ZCOUNT', prefix .. state, '-inf',
      '(' .. string.format('%d', now_ms - age_ms)))
  end
  local ended = over_bounds('done', tonumber(kept[1] or done_max), tonumber(kept[2]))
  -- anchor: finished-jobs-are-bounded
  if ended > 0 then redis.call('ZREMRANGEBYRANK', prefix .. 'done', 0, math.min(ended, 5000) - 1) end
  -- The defaults: 100,000 jobs and 90 days.
  local over = over_bounds('dead', tonumber(kept[3] or 100000), tonumber(kept[4] or 7776000000))
  if over <= 0 then return ended > 5000 end
  -- anchor: oldest-dead-go-first
  for _, id in ipairs(redis.call('ZRANGE', dead, 0, math.min(over, 50) - 1)) do
    local job = job_head(prefix .. 'job:' .. id)
    -- Left over from a requeue that was cut off before its last write. The job is active by now, so only the
    -- entry is removed.
    if not job or redis.call('ZSCORE', prefix .. 'active', id) then
      leave_dead(prefix, id)
    else
      end_job(prefix, job, id, { outcome = 2, op_id = 'retention', not_after_ms = now_ms }, now_ms,
        virtual_time, wakes, events)
    end
  end
  return ended > 5000 or over > 50
end

-- Remove the remaining keys of a queue without jobs (forget.lua); those that may be many are removed in part.
-- Returns whether there are more.
local function forget_all(prefix, now_ms)
  local known = {}
  for _, limit in ipairs(redis.call('HVALS', prefix .. 'parked')) do known[limit] = true end
  local blocking = redis.call('ZRANGE', prefix .. 'blocking', 0, 999)
  for _, limit in ipairs(blocking) do known[limit] = true end
  for limit in pairs(known) do redis.call('DEL', prefix .. 'parked:' .. limit) end
  if blocking[1] then redis.call('ZREM', prefix .. 'blocking', unpack(blocking)) end
  local classes = redis.call('HSCAN', prefix .. 'classes', '0', 'COUNT', 500)
  for at = 1, #classes[2], 2 do
    redis.call('DEL', prefix .. 'ready:' .. classes[2][at], prefix .. 'wake:' .. classes[2][at])
    redis.call('HDEL', prefix .. 'classes', classes[2][at])
  end
  -- note_class writes the entry under a name once, so it must stay as long as a class is known.
  if redis.call('EXISTS', prefix .. 'classes') == 0 then redis.call('DEL', prefix .. 'routed') end
  for _, name in ipairs(redis.call('ZRANGE', prefix .. 'took', 0, -1)) do
    redis.call('DEL', prefix .. 'took:' .. name)
  end
  redis.call('DEL', prefix .. 'took', prefix .. 'parked', prefix .. 'rest', prefix .. 'stats',
    prefix .. 'events', prefix .. 'handing', prefix .. 'witness', prefix .. 'expiring')
  redis.call('UNLINK', prefix .. 'history')
  -- Workers whose pause or concurrency was set are notified that the setting is gone.
  local set = {}
  for _, field in ipairs(redis.call('HKEYS', prefix .. 'settings')) do
    if field ~= 'version' then set[#set + 1] = field end
  end
  -- Before the keys are deleted, because a copy of a call that was cut off must find them and do it again.
  if set[1] then notify_settings(prefix, now_ms) end
  for at = 1, #set, PIECE do
    redis.call('HDEL', prefix .. 'settings', unpack(set, at, math.min(at + PIECE - 1, #set)))
  end
  redis.call('ZREMRANGEBYSCORE', prefix .. 'workers', '-inf', '(' .. string.format('%d', now_ms))
  if redis.call('EXISTS', prefix .. 'workers') == 0 then redis.call('DEL', prefix .. 'connections') end
  -- No job waits for these any more.
  local feeding = redis.call('SRANDMEMBER', prefix .. 'feeding', PIECE)
  for _, parent in ipairs(feeding) do
    local cursor = '0'
    repeat
      local page = redis.call('SSCAN', prefix .. 'feeds:' .. parent, cursor, 'MATCH', '>*', 'COUNT', 1000)
      for _, call in ipairs(page[2]) do redis.call('UNLINK', prefix .. 'calls:' .. string.sub(call, 2)) end
      cursor = page[1]
    until cursor == '0'
    redis.call('UNLINK', prefix .. 'feeds:' .. parent)
    redis.call('SREM', prefix .. 'feeding', parent)
  end
  -- The caller repeats the call until none is left.
  for _, parent in ipairs(redis.call('ZRANGE', prefix .. 'keeping', 0, 199)) do
    redis.call('UNLINK', prefix .. 'heirs:' .. parent, prefix .. 'feeds:' .. parent)
  end
  release_results(prefix, now_ms, 200)
  return redis.call('EXISTS', prefix .. 'feeding', prefix .. 'keeping', prefix .. 'classes',
    prefix .. 'blocking') > 0
end

-- The state and fence of the job `holder`, which keeps another enqueue out. `job`: what is under its id,
-- opened. The record of a rejected enqueue there says nothing of that job.
local function holder_state(prefix, job, holder)
  if job and (job.outcome == 'rejected' or job.outcome == 'orphaned') then job = nil end
  return job_state(prefix, job, holder)
end

-- The job that makes another one a duplicate (rule 23). The holder of the unique key counts unless it has
-- ended, is dead or gone, or has another key by now. The job that opened the dedup window counts in any
-- state, even with this very id if nothing else is left of it. A key is '' if there is none. Returns id,
-- state and fence, or nil.
local function unique_holder(prefix, unique, dedup, id)
  local holder = unique ~= '' and redis.call('GET', prefix .. 'unique:' .. unique)
  if holder and holder ~= id then
    local job = job_head(prefix .. 'job:' .. holder)
    local state, fence = job_state(prefix, job, holder)
    -- anchor: unique-key-is-held
    if job and job.unique == unique and state ~= 'dead' then return holder, state, fence end
    -- A job that moves to another shard holds the key until it has arrived.
    if state == 'moving' then return holder, state, fence end
  end
  holder = dedup ~= '' and redis.call('GET', prefix .. 'dedup:' .. dedup)
  if holder then
    return holder, holder_state(prefix, job_head(prefix .. 'job:' .. holder), holder)
  end
end

-- Free the unique key of a job that has ended or is dead, if it still holds it (rule 23).
local function free_unique(prefix, job, id)
  if not job.unique then return end
  local key = prefix .. 'unique:' .. job.unique
  if redis.call('GET', key) == id then redis.call('DEL', key) end
end

-- What is under the id of an enqueue (rule 3): nothing, the job of another copy of this call ('repeated'), or
-- another job ('duplicate'). Returns result, state, fence and the id of the existing job; nil if there is
-- none. A rejected call, because of another job or a missing parent, has left a tombstone that names that
-- job. So its late copies are rejected as well. For other calls that tombstone counts as nothing.
local function enqueue_known(prefix, known, nonce, id)
  if not known then return nil end
  local same = known.enqueue_nonce == nonce -- anchor: another-enqueue-of-the-same-id-is-refused
  if known.outcome == 'orphaned' then
    if not same then return nil end
    return 'orphan', '', 0, known.nonce
  end
  if known.outcome == 'rejected' then
    if not same then return nil end
    local holder = job_head(prefix .. 'job:' .. known.nonce)
    local state, fence = holder_state(prefix, holder, known.nonce)
    return 'duplicate', state, fence, known.nonce
  end
  if same then return 'repeated', '', 0, id end
  local state, fence = job_state(prefix, known, id)
  return 'duplicate', state, fence, id
end

-- Record that an enqueue was rejected, as long as a late copy of it could arrive. Outcome 3: because of
-- another job; 4: because a parent is missing. `holder` is the id of that job.
local function reject_enqueue(job_key, enqueue_nonce, holder, until_ms, outcome)
  redis.call('SET', job_key, tombstone_of(outcome, enqueue_nonce, 0, 32, holder), 'PXAT', until_ms)
end
