-- Jobs that need other jobs (their parents): what they wait for, how the parents ended, and the results that
-- they may read.
-- USES core/envelope: checked_head, envelope_open, envelope_options, job_head, options_of
--      core/job: done_as, make_job
--      core/lane: due_member, to_lane
--      core/lease: bury_job, drop_run
--      core/run: run_look, run_note, run_pack, run_read

-- Block a new job until its parents have ended (rule 25); its envelope is written afterwards. If the script
-- is cut off in between, hand_over finds an entry without a job and removes it. The next sweep handles a
-- parent that is lost already, as one that is lost later.
local function block_job(prefix, id, waits_for, lost, now_ms)
  redis.call('SADD', prefix .. 'feeding', unpack(waits_for))
  for _, parent in ipairs(waits_for) do redis.call('SADD', prefix .. 'feeds:' .. parent, id) end
  redis.call('SADD', prefix .. 'needs:' .. id, unpack(waits_for))
  redis.call('ZADD', prefix .. 'blocked', now_ms, id)
  for _, parent in ipairs(lost) do redis.call('ZADD', prefix .. 'handing', now_ms, '-' .. parent) end
end

-- The state of a job that others wait for (rule 25): 'open' while it may still run; 'done'; 'lost' if it is
-- dead or was ended without its work; nil if it is unknown. `job` is the result of envelope_open.
local function parent_fate(prefix, job, id)
  if job and job.kind ~= 'T' then return redis.call('ZSCORE', prefix .. 'dead', id) and 'lost' or 'open' end
  local outcome = job and job.outcome
  if outcome == 'finished' then return 'done' end
  local lost = { discarded = true, skipped = true, cancelled = true, rerouted = true, expired = true }
  -- anchor: dropped-parent-counts-as-lost
  if lost[outcome] then return 'lost' end
  -- Its tombstone has expired, or another call has left its own under this id.
  local ended = done_as(prefix, id)
  if ended then return ended == 'finished' and 'done' or 'lost' end
  if redis.call('ZSCORE', prefix .. 'dead', id) then return 'lost' end
end

-- Place a job whose parents have all ended: into its lane, or into `due` while its delay lasts (rule 25).
-- Returns the wake list to push, if any.
local function place_child(prefix, job, id, now_ms, virtual_time)
  if job.due_ms > now_ms then -- anchor: unblocked-job-waits-for-its-own-time
    local member = due_member(job.sequence, id)
    redis.call('ZADD', prefix .. 'due', job.due_ms, member)
    return redis.call('ZRANGE', prefix .. 'due', 0, 0)[1] == member and prefix .. 'wake:' .. job.class or nil
  end
  return to_lane(prefix, id, job, virtual_time)
end

-- Forget what a job lacked when it was buried with a parent, and that these parents lead to it, unless it
-- leads to others that are dead.
local function forget_lacked(prefix, id)
  local parents = redis.pcall('SMEMBERS', prefix .. 'lacks:' .. id)
  -- A key of another type stops nothing.
  if not parents[1] then return end
  local leads = redis.call('EXISTS', prefix .. 'lost:' .. id) == 1
  for _, parent in ipairs(leads and {} or parents) do redis.pcall('SREM', prefix .. 'lost:' .. parent, id) end
  redis.call('DEL', prefix .. 'lacks:' .. id)
end

-- The last writes of a requeue or a revival: what the job lacked is forgotten, and it leaves `dead`. Only
-- now, when it stands elsewhere, so that the copy of a call that was cut off finds it there.
local function leave_dead(prefix, id)
  forget_lacked(prefix, id)
  redis.call('ZREM', prefix .. 'dead', id)
end

-- Make a job claimable because its last parent has ended: it goes into its lane, or into `due` while its
-- delay lasts (rule 25). It leaves `blocked` last, so that it is found there after a script that was cut off.
-- A job that was claimed or buried meanwhile is not placed again. The wake lists to push are added to
-- `wakes`.
local function unblock_job(prefix, job, id, now_ms, virtual_time, wakes, events)
  local ran = run_read(prefix .. 'run:' .. id, 'fence', 'requeued_ms')
  local died_ms = tonumber(redis.call('ZSCORE', prefix .. 'dead', id) or nil)
  -- Left over from a revival that was cut off before it removed the entry (revive.lua).
  if died_ms and died_ms < tonumber(ran[2] or 0) then
    leave_dead(prefix, id)
    died_ms = nil
  end
  if not ran[1] and not died_ms then
    local wake = place_child(prefix, job, id, now_ms, virtual_time)
    if wake then wakes[wake] = true end
    if events then table.insert(events, { 'unblocked', id, job.name }) end
  end
  redis.call('ZREM', prefix .. 'blocked', id)
end

-- Read the parents of a new job (rule 25): KEYS job:<id>, feeds:<id>, heirs:<id> and result:<id> of each from
-- `keys_at` on.
-- Returns the open parents; those of them that are lost already; the first unknown parent; and a flat list of
-- the ended parents that have left a result, each with the time (ms) at which the result expires.
local function read_parents(prefix, keys_at, flags)
  local waits_for, lost, results = {}, {}, {}
  for at = keys_at, #KEYS, 4 do
    local parent = string.sub(KEYS[at], #prefix + 5)
    redis.call('SCARD', KEYS[at + 1])
    redis.call('SCARD', KEYS[at + 2])
    local fate = parent_fate(prefix, checked_head(KEYS[at]), parent)
    if not fate then
      -- `done` keeps only the newest jobs; the result may show for longer how the parent has ended.
      local record = redis.pcall('GETRANGE', KEYS[at + 3], 0, 10)
      fate = record == '{"ok":true,' and 'done' or record == '{"ok":false' and 'lost'
    end
    if not fate then return waits_for, lost, parent end
    -- Flag 16: a lost parent counts as done.
    local tells = fate == 'lost' and math.floor(flags / 16) % 2 == 0
    -- anchor: child-waits-for-open-parents
    if fate == 'open' or tells then waits_for[#waits_for + 1] = parent end
    if tells then lost[#lost + 1] = parent end
    local until_ms = fate ~= 'open' and redis.call('PEXPIRETIME', KEYS[at + 3]) or 0
    if until_ms > 0 then results[#results + 1], results[#results + 2] = parent, until_ms end
  end
  return waits_for, lost, nil, results
end

-- What a job's parents have left for it, for the reply of a claim. It is the job's id; if the job is a
-- failure callback, the cause of the failure, else ''; and the result of each parent in the order of its
-- option `needs` ('' = none). The second value is their size.
local function left_by_parents(prefix, id, raw, cause)
  local keys, found, bytes = {}, { id, cause or '' }, 0
  for at, parent in ipairs((envelope_options(raw) or {}).needs or {}) do
    keys[at] = prefix .. 'result:' .. parent
  end
  for at, record in ipairs(keys[1] and redis.call('MGET', unpack(keys)) or {}) do
    found[2 + at] = record or ''
    bytes = bytes + #found[2 + at]
  end
  return found, bytes
end

-- Make the callback of a job that has ended, if it has one for that end (rule 25). `calls:<sequence>` holds
-- the envelopes for its success and its failure. The write that makes the job empties that key, so repeated
-- calls make it only once. `why`: the cause of a failure; `kept`: its result is kept, and the callback may
-- read it.
local function call_back(prefix, parent, sequence, done, why, kept, now_ms, virtual_time, wakes, events)
  local key = prefix .. 'calls:' .. sequence
  local both = redis.call('GET', key)
  if both and both ~= '' then
    local size = struct.unpack('>I4', both)
    local sealed = string.sub(both, done and 5 or 5 + size, done and 4 + size or -1)
    if sealed ~= '' then
      local id = parent .. (done and '>success:' or '>failure:') .. sequence
      if kept then redis.call('SADD', prefix .. 'heirs:' .. parent, id) end
      local run = run_pack({ heir = '1', cause = not done and why or nil })
      make_job(prefix, id, sealed, envelope_open(sealed), now_ms, virtual_time, wakes, events,
        { prefix .. 'run:' .. id, run, key, '' })
    end
  end
  redis.call('DEL', key)
end

-- Make the failure callback of a job that was buried just now, if it has one. The next sweep does the rest
-- (hand_over).
local function call_back_dead(prefix, job, id, why, now_ms, virtual_time, wakes, events)
  if not job.sequence then return end
  local kept = redis.call('ZSCORE', prefix .. 'keeping', id)
  call_back(prefix, id, string.format('%d', job.sequence), false, why, kept, now_ms, virtual_time, wakes,
    events)
end

-- Why a job is lost: the last error of a dead one, or how it was ended. `job` is its opened envelope or
-- tombstone.
local function cause_of(prefix, job, id)
  if job and job.kind == 'T' then return job.outcome end
  return run_look(prefix .. 'run:' .. id, 'error')[1] or job and 'dead' or 'gone'
end

-- Note that a dead job was buried with a parent, which leads to it from now on: `lost:<parent>`. It expires
-- after 90 days, as dead jobs do unless told.
local function note_lost(prefix, parent, child, now_ms)
  local lost = prefix .. 'lost:' .. parent
  -- A key of another type must not stop the sweeps.
  if type(redis.pcall('SCARD', lost)) == 'table' then return end
  redis.call('SADD', lost, child)
  redis.call('PEXPIREAT', lost, string.format('%d', now_ms + 7776000000))
end

-- Note what a dead job lacks that comes from another shard.
local function note_lacked(prefix, id, parents, now_ms)
  local lacks = prefix .. 'lacks:' .. id
  if not parents[1] or type(redis.pcall('SCARD', lacks)) == 'table' then return end
  redis.call('SADD', lacks, unpack(parents))
  redis.call('PEXPIREAT', lacks, string.format('%d', now_ms + 7776000000))
  for _, parent in ipairs(parents) do
    if parent ~= '' then note_lost(prefix, parent, id, now_ms) end
  end
end

-- The parents that a dead job lacked when it was buried with one of them, without those that have finished
-- since, in one order; '' beside them or alone: nothing of it is lacked (tell_dead). A job that has run lacks
-- none, because it died by itself. Without a note and without a run, a job lacks all its needs: an older
-- engine has buried it, or the note has expired.
local function lacked_by(prefix, id, job)
  if run_look(prefix .. 'run:' .. id, 'fence')[1] then return {} end
  local parents = redis.call('SMEMBERS', prefix .. 'lacks:' .. id)
  -- A foreign key `needs` has buried the job, not a parent.
  if not parents[1] and type(redis.pcall('SCARD', prefix .. 'needs:' .. id)) == 'number' then
    parents = (options_of(prefix .. 'job:' .. id, job) or {}).needs or {}
  end
  table.sort(parents)
  return parents
end

-- Tell a child that waits no more how another of its parents has ended. A dead one notes it, for its revival.
local function tell_dead(prefix, parent, fate, child, now_ms)
  local lacks = prefix .. 'lacks:' .. child
  if redis.pcall('SISMEMBER', lacks, parent) ~= 1 then return end
  if fate ~= 'done' then return note_lost(prefix, parent, child, now_ms) end
  -- An empty set is no note: of such a child all that it needs would count as lacked.
  if redis.call('SCARD', lacks) == 1 then redis.call('SADD', lacks, '') end
  redis.call('SREM', lacks, parent)
end

-- Bury a child whose parent is lost, or that cannot be read itself. `parent`: as for tell_child.
local function bury_child(prefix, parent, child, known, unread, now_ms, events)
  local needs, job = prefix .. 'needs:' .. child, parent.job
  local why = string.format('its parent %s is %s', parent.id, job and (job.outcome or 'dead') or 'gone')
  if known.kind == 'corrupt' then
    why = unread and 'the key ' .. needs .. ' is no set' or 'corrupt envelope'
  end
  if known.kind == 'J' then note_lost(prefix, parent.id, child, now_ms) end
  if not redis.call('ZSCORE', prefix .. 'dead', child) then
    bury_job(prefix, known, child, now_ms, events, why)
  end
  run_note(prefix .. 'run:' .. child, 'error', why)
  -- What it still waited for is kept for a revival. The expiry is set first, because a rename keeps it.
  if known.kind == 'J' then
    redis.call('PEXPIREAT', needs, string.format('%d', now_ms + 7776000000))
    redis.call('RENAME', needs, prefix .. 'lacks:' .. child)
  end
  redis.call('ZREM', prefix .. 'blocked', child)
  -- A dead job does not expire, and a requeued one neither.
  if known.kind == 'J' then
    redis.call('ZREM', prefix .. 'expiring', due_member(known.sequence, child))
  elseif not unread then
    redis.call('DEL', needs)
  end
end

-- Tell one child how a parent has ended. Returns false if it goes on waiting, because the parent is open.
-- parent: id; job (its opened envelope); fate (open | done | lost) now, and before its id was used again;
-- kept: whether its result is kept
local function tell_child(prefix, parent, child, now_ms, virtual_time, wakes, events)
  local needs, fate, job, kept = prefix .. 'needs:' .. child, parent.fate, parent.job, parent.kept
  local known = job_head(prefix .. 'job:' .. child)
  if job and job.sequence and known and known.sequence and known.sequence < job.sequence then
    fate = parent.before
  end
  local unread = type(redis.pcall('SCARD', needs)) == 'table'
  if unread and known and known.kind == 'J' then known.kind = 'corrupt' end
  -- Such a member is no child, but leads to the callbacks of the job with that sequence.
  local call = string.match(child, '^>(%d+)$')
  local earlier = call and job and job.sequence and tonumber(call) < job.sequence
  if earlier then fate = parent.before end
  if fate == 'open' then return false end
  if call then
    local why = earlier and 'gone' or cause_of(prefix, job, parent.id)
    call_back(prefix, parent.id, call, fate == 'done', why, kept, now_ms, virtual_time, wakes, events)
  elseif not redis.call('ZSCORE', prefix .. 'blocked', child) or not known or known.kind == 'T' then
    -- The child was removed, or its enqueue was cut off before it wrote the job.
    if not (known and known.kind ~= 'T') and not redis.call('ZSCORE', prefix .. 'active', child) then
      drop_run(prefix, child)
    end
    if not unread then redis.call('SREM', needs, parent.id) end
    tell_dead(prefix, parent.id, fate, child, now_ms)
    redis.call('ZREM', prefix .. 'blocked', child)
  elseif known.kind == 'corrupt'
    -- anchor: lost-parent-buries-the-child
    or fate == 'lost' and math.floor(known.flags / 16) % 2 == 0 and redis.call('SISMEMBER', needs, parent.id) == 1 then
    bury_child(prefix, parent, child, known, unread, now_ms, events)
  else
    -- The child may read the parent's result, however late it runs: see release_results.
    -- anchor: waiting-child-keeps-the-results
    if kept then redis.call('SADD', prefix .. 'heirs:' .. parent.id, child) end
    redis.call('SREM', needs, parent.id)
    -- anchor: all-parents-ended-before-the-child
    if redis.call('SCARD', needs) == 0 then unblock_job(prefix, known, child, now_ms, virtual_time, wakes, events) end
  end
  return true
end

-- Pass the ends of parents on to at most `most` of their children (rule 25). A child without another open
-- parent becomes claimable. A child that must not run without the parent is buried, and its own children
-- follow in a later call. `handing` holds the ended parents, with `+` (finished) or `-` before their id,
-- until all of their children are handled. If an id is used again, children older than the new job waited for
-- the earlier job. Returns whether some are left to be told; the wake lists to push are added to `wakes`.
local function hand_over(prefix, now_ms, virtual_time, most, wakes, events)
  local handing, reads, stuck = prefix .. 'handing', 10000, 0
  for _, member in ipairs(redis.call('ZRANGE', handing, 0, 99)) do
    local id, handled = string.sub(member, 2), 0
    local feeds = prefix .. 'feeds:' .. id
    local job = job_head(prefix .. 'job:' .. id)
    local before = string.sub(member, 1, 1) == '+' and 'done' or 'lost'
    local parent = { id = id, job = job, before = before, fate = parent_fate(prefix, job, id) or before,
      kept = redis.call('ZSCORE', prefix .. 'keeping', id) }
    -- A parent that is open again was requeued, or its id is used again, so its own children wait for its
    -- next end. With more than 10,000 children all of them wait for it, because one call reads at most that
    -- many entries, whatever the number of such parents.
    local open = parent.fate == 'open'
    local size = redis.pcall('SCARD', feeds)
    -- If `feeds` has another type, the children of that parent wait until it is gone. Those of others do not.
    local foreign = type(size) == 'table'
    if foreign then stuck = stuck + 1 end
    if foreign or not open then size = 0 end
    if size > 10000 then size = 0 end
    if size > reads then break end
    reads = reads - size
    local children = foreign and {} or not open and redis.call('SRANDMEMBER', feeds, most)
      or size > 0 and redis.call('SMEMBERS', feeds) or {}
    table.sort(children)
    for _, child in ipairs(children) do
      if tell_child(prefix, parent, child, now_ms, virtual_time, wakes, events) then
        redis.call('SREM', feeds, child)
        handled = handled + 1
        if handled >= most then break end
      end
    end
    most = most - handled
    if not foreign and (open and most > 0 or redis.call('EXISTS', feeds) == 0) then
      if not open then redis.call('SREM', prefix .. 'feeding', id) end
      redis.call('ZREM', handing, member)
    end
    if most <= 0 then break end
  end
  return redis.call('ZCARD', handing) > stuck
end

-- Let kept results of parents expire, each when none of its children waits or runs any more (rule 25). A kept
-- result expires 2^48 ms later than it otherwise would; its own expiry is restored here. The key has no other
-- record of it, so a call that is cut off loses nothing. `keeping` holds the parents by the time of their
-- last check, and this checks the `most` oldest. `heirs` are the children that know of their parent's end,
-- `feeds` those that do not yet. Returns whether another call may find more at once: many results were
-- let go, or the reads of this call were used up.
local function release_results(prefix, now_ms, most)
  local keeping, more_ms, reads, gone = prefix .. 'keeping', KEPT_MS, 10 * most, 0
  for _, parent in ipairs(redis.call('ZRANGE', keeping, 0, most - 1)) do
    local heirs, result = prefix .. 'heirs:' .. parent, prefix .. 'result:' .. parent
    local until_ms = redis.call('PEXPIRETIME', result)
    local waits = until_ms > 0 and redis.call('EXISTS', prefix .. 'feeds:' .. parent) == 1
    while not waits and until_ms > 0 and reads > 0 do
      -- A key of another type must not stop the sweeps.
      local child = redis.pcall('SRANDMEMBER', heirs)
      if type(child) ~= 'string' then break end
      local raw = redis.pcall('GETRANGE', prefix .. 'job:' .. child, 0, HEAD_LAST)
      local job = type(raw) == 'string' and envelope_open(raw)
      -- anchor: results-stay-while-a-child-lives
      waits = job and job.kind ~= 'T' and not redis.call('ZSCORE', prefix .. 'dead', child)
      if not waits then redis.call('SREM', heirs, child) end
      reads = reads - 1
    end
    if waits then
      -- The parent has ended once more since its result was kept.
      if until_ms < more_ms then redis.call('PEXPIREAT', result, string.format('%d', until_ms + more_ms)) end
      redis.call('ZADD', keeping, now_ms, parent)
    elseif until_ms <= 0 or redis.call('EXISTS', heirs) == 0 then
      if until_ms >= more_ms then redis.call('PEXPIREAT', result, string.format('%d', until_ms - more_ms)) end
      redis.call('UNLINK', heirs)
      redis.call('ZREM', keeping, parent)
      gone = gone + 1
    end
  end
  return reads == 0 or 2 * gone >= most
end

-- Check 10 random jobs that others wait for (rule 25). If one has ended without an entry in `handing`, it
-- gets an entry. So children never wait for ever, even if a job is lost or its end wrote no entry.
local function mend_feeding(prefix, now_ms)
  for _, parent in ipairs(redis.call('SRANDMEMBER', prefix .. 'feeding', 10)) do
    local job = job_head(prefix .. 'job:' .. parent)
    local fate = parent_fate(prefix, job, parent)
    if fate ~= 'open' then
      redis.call('ZADD', prefix .. 'handing', now_ms, (fate == 'done' and '+' or '-') .. parent)
    end
  end
end

-- Keep the results of parents that ended before their child is enqueued (rule 25), until `release_results`
-- finds that the child has ended. `found`: pairs of parent and expiry of its result. If the script is cut off
-- before the child exists, the next check releases them.
local function keep_results(prefix, child, found, now_ms)
  for at = 1, #found, 2 do
    local parent, until_ms = found[at], found[at + 1]
    redis.call('ZADD', prefix .. 'keeping', 'NX', now_ms, parent)
    redis.call('SADD', prefix .. 'heirs:' .. parent, child)
    if until_ms < KEPT_MS then
      redis.call('PEXPIREAT', prefix .. 'result:' .. parent, string.format('%d', until_ms + KEPT_MS))
    end
  end
end

-- What a revival of a dead job would find (rule 25): the parents that it waits for again; pairs of a parent
-- that has finished and the expiry of its result, for keep_results; or, if it must stay dead, the parent that
-- is lost still or that nobody knows any more. `revived`: ids of jobs that the same call revives before it.
local function lacked_parents(prefix, id, job, revived)
  local waits_for, open, results = {}, {}, {}
  for _, parent in ipairs(lacked_by(prefix, id, job)) do
    local fate = parent == '' and 'done' or revived[parent] and 'open'
      or parent_fate(prefix, job_head(prefix .. 'job:' .. parent), parent)
    -- anchor: revived-child-has-no-lost-parent
    if fate ~= 'open' and fate ~= 'done' then return waits_for, results, parent end
    if fate == 'open' then waits_for[#waits_for + 1], open[parent] = parent, true end
  end
  for _, parent in ipairs((options_of(prefix .. 'job:' .. id, job) or {}).needs or {}) do
    local until_ms = not open[parent] and redis.call('PEXPIRETIME', prefix .. 'result:' .. parent) or 0
    if until_ms > 0 then results[#results + 1], results[#results + 2] = parent, until_ms end
  end
  return waits_for, results
end

-- Whether what is under the id of a child is that child still, or a callback of the parent. The id may be
-- used again, by a job that does not need this parent. Of one that has ended nobody knows.
local function is_child(prefix, parent, child)
  if string.sub(child, 1, #parent + 1) == parent .. '>' then return true end
  local key = prefix .. 'job:' .. child
  local job = job_head(key)
  if not job or job.kind ~= 'J' then return true end
  for _, needed in ipairs((options_of(key, job) or {}).needs or {}) do
    if needed == parent then return true end
  end
  return false
end

-- One page of the children of a job, in no order and perhaps twice: those that wait for it, those that may
-- read its result, and those that were buried with it. `cursor` is '' or what the page before has returned.
-- The second value is the cursor of the next page, '' after the last one.
local function some_children(prefix, id, cursor)
  local sets, found = { 'feeds:', 'heirs:', 'lost:' }, {}
  local at, from = string.match(cursor, '^(%d):(%d+)$')
  at, from = tonumber(at or 1), from or '0'
  while sets[at] and #found < 250 do
    local page = redis.pcall('SSCAN', prefix .. sets[at] .. id, from, 'COUNT', 250)
    -- A key of another type has no children.
    for _, child in ipairs(page[2] or {}) do
      -- A member that begins with > leads to the callbacks of the job.
      if string.sub(child, 1, 1) ~= '>' and is_child(prefix, id, child) then found[#found + 1] = child end
    end
    from = page[2] and page[1] or '0'
    if from == '0' then at = at + 1 end
  end
  return found, sets[at] and at .. ':' .. from or ''
end
