-- Jobs on their way from one shard to another: packed with all that is theirs (docs/guides/shards.md).
-- USES children/children: lacked_by, note_lacked, parent_fate
--      core/envelope: envelope_kind, envelope_open, envelope_options, envelope_target, job_head, tombstone_of
--      core/lane: due_member, to_lane
--      core/run: run_unpack
--      core/wake: note_class

-- Words of any bytes as one string.
local function words_pack(words)
  local parts = {}
  for at, word in ipairs(words) do parts[at] = #word .. ':' .. word end
  return table.concat(parts)
end

-- The words of a string that words_pack has made.
local function words_unpack(packed)
  local words, at = {}, 1
  while at <= #packed do
    local size, from = string.match(packed, '^(%d+):()', at)
    words[#words + 1], at = string.sub(packed, from, from + size - 1), from + size
  end
  return words
end

-- The parents that a dead job lacks, packed; '' where it died by itself. Those that have finished are left
-- out, because the new shard may not know of them.
local function lacks_to_move(prefix, id, job)
  local lacked, open = lacked_by(prefix, id, job), {}
  for _, parent in ipairs(lacked) do
    local fate = parent_fate(prefix, job_head(prefix .. 'job:' .. parent), parent)
    if fate ~= 'done' then open[#open + 1] = parent end
  end
  return lacked[1] and words_pack(open[1] and open or { '' }) or ''
end

-- A job that may move now, packed: its state (waiting, delayed or dead) and score, envelope, run, time of its
-- expiry, whether it has its unique key, its result, how long that is kept, and what it lacks. Nil for one
-- that runs, has ended, is blocked, or has parents or children: those stay until they have ended. So does one
-- whose job or run has another type. The second value is its opened envelope.
local function job_to_move(prefix, id)
  local raw, run = redis.pcall('GET', prefix .. 'job:' .. id), redis.pcall('GET', prefix .. 'run:' .. id)
  if type(raw) == 'table' or type(run) == 'table' then return nil end
  local job = envelope_open(raw or nil)
  if not job or job.kind == 'T' or redis.call('ZSCORE', prefix .. 'active', id) then return nil end
  local state, score = 'dead', redis.call('ZSCORE', prefix .. 'dead', id)
  if not score then
    if job.kind ~= 'J' or redis.call('SISMEMBER', prefix .. 'feeding', id) == 1
        or redis.call('ZSCORE', prefix .. 'blocked', id) then
      return nil
    end
    if (envelope_options(raw) or {}).needs then return nil end
    state, score = 'delayed', redis.call('ZSCORE', prefix .. 'due', due_member(job.sequence, id))
    if not score then state, score = 'waiting', redis.call('ZSCORE', prefix .. 'lane:' .. job.lane, id) end
  elseif redis.call('EXISTS', prefix .. 'feeds:' .. id) == 1 then
    return nil
  end
  if not score then return nil end
  local expires = job.kind == 'J' and redis.call('ZSCORE', prefix .. 'expiring', due_member(job.sequence, id))
    or ''
  local owns = job.unique and redis.pcall('GET', prefix .. 'unique:' .. job.unique) == id and '1' or ''
  local result, kept_ms = redis.pcall('GET', prefix .. 'result:' .. id),
    redis.call('PTTL', prefix .. 'result:' .. id)
  if type(result) ~= 'string' then result = '' end
  local lacks = state == 'dead' and lacks_to_move(prefix, id, job) or ''
  return words_pack({ state, score, raw, run or '', expires, owns, result, string.format('%d', kept_ms),
    lacks }), job
end

-- Take a packed job out of the indexes of its shard. Its unique key stays, and a tombstone that says that it
-- moves. The lane that it was in is added to `lanes`.
local function leave_shard(prefix, id, packed, lanes)
  local words = words_unpack(packed)
  local job = envelope_open(words[3])
  if job.kind == 'J' then
    local member = due_member(job.sequence, id)
    redis.call('ZREM', prefix .. 'lane:' .. job.lane, id)
    redis.call('ZREM', prefix .. 'due', member)
    redis.call('ZREM', prefix .. 'expiring', member)
    lanes[job.lane] = true
  end
  redis.call('ZREM', prefix .. 'dead', id)
  local run = run_unpack(words[4]) or {}
  redis.call('SET', prefix .. 'job:' .. id, tombstone_of(9, job.enqueue_nonce or '', tonumber(run.fence or 0),
    32, 'resharding'))
end

-- Put a packed job into its new shard, unless one of its id is there already. The order of the writes is that
-- of enqueue.lua. Returns whether it was put; the wake lists to push are added to `wakes`.
local function enter_shard(prefix, id, packed, now_ms, virtual_time, wakes)
  local key, words = prefix .. 'job:' .. id, words_unpack(packed)
  local state, score, raw, run, expires, owns, result, kept_ms, lacks = unpack(words)
  local there = redis.call('GET', key)
  if there and envelope_kind(there) ~= 'T' then return there == raw end
  local job, own = envelope_open(raw), { key, raw }
  if job.kind == 'J' and redis.call('HEXISTS', prefix .. 'classes', job.class) == 0 then
    note_class(prefix, prefix .. 'classes', job.class, envelope_target(raw), now_ms)
  end
  if expires ~= '' then redis.call('ZADD', prefix .. 'expiring', expires, due_member(job.sequence, id)) end
  local wake
  if state == 'waiting' then
    wake = to_lane(prefix, id, job, virtual_time)
  elseif state == 'delayed' then
    local member = due_member(job.sequence, id)
    redis.call('ZADD', prefix .. 'due', score, member)
    wake = redis.call('ZRANGE', prefix .. 'due', 0, 0)[1] == member and prefix .. 'wake:' .. job.class
  else
    -- An older engine has packed nothing of it.
    note_lacked(prefix, id, words_unpack(lacks or ''), now_ms)
    redis.call('ZADD', prefix .. 'dead', score, id)
  end
  if run ~= '' then own[#own + 1], own[#own + 2] = prefix .. 'run:' .. id, run end
  -- A dead job that was requeued here meanwhile may have it.
  if owns == '1' and redis.call('EXISTS', prefix .. 'unique:' .. job.unique) == 0 then
    own[#own + 1], own[#own + 2] = prefix .. 'unique:' .. job.unique, id
  end
  if result ~= '' and tonumber(kept_ms) > 0 then
    redis.call('SET', prefix .. 'result:' .. id, result, 'PX', kept_ms)
  end
  redis.call('MSET', unpack(own))
  if wake then wakes[wake] = true end
  return true
end
