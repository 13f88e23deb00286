-- Tell at most `most` jobs that a parent of theirs has ended (rule 25): who has no other parent left goes on, who must not go on
-- without it is buried, and so are its own children in a later call. `handing` holds the parents, `+` (finished) or `-` before their
-- id, until all of their children are told. Returns whether some are left; wake lists that gain work are added to `wakes`. An id that
-- is used again has two kinds of children: those that are older than the new job waited for the one before.
-- helpers: envelope_open, parent_fate, unblock_job, due_member, to_lane, lane_score, bury_job, free_unique, error_ttl, tell_ended,
--   drop_run
local function hand_over(prefix, now_ms, turn, most, wakes, helpers)
  local handing, blocked, looks = prefix .. 'handing', prefix .. 'blocked', 10000
  for _, member in ipairs(redis.call('ZRANGE', handing, 0, 99)) do
    local parent = string.sub(member, 2)
    local feeds = prefix .. 'feeds:' .. parent
    local job = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. parent, 0, 700))
    local before = string.sub(member, 1, 1) == '+' and 'done' or 'lost'
    local now, kept, told = helpers.parent_fate(prefix, job, parent) or before, redis.call('ZSCORE', prefix .. 'keeping', parent), 0
    -- An open one was requeued, or its id is used again: its own children wait for its next end. Beyond 10,000 all do; and so many are
    -- looked at in a call, whatever the number of such parents.
    local open = now == 'open'
    local size = open and redis.call('SCARD', feeds) or 0
    if size > 10000 then size = 0 end
    if size > looks then break end
    looks = looks - size
    local children = not open and redis.call('SRANDMEMBER', feeds, most) or size > 0 and redis.call('SMEMBERS', feeds) or {}
    table.sort(children)
    for _, child in ipairs(children) do
      local needs, fate = prefix .. 'needs:' .. child, now
      local known = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. child, 0, 700))
      if job and job.sequence and known and known.sequence and known.sequence < job.sequence then fate = before end
      if fate == 'open' then
        -- It stays.
      elseif not redis.call('ZSCORE', blocked, child) or not known or known.kind == 'T' then
        -- It was removed, or an enqueue was cut off before it made the job.
        if not (known and known.kind ~= 'T') and not redis.call('ZSCORE', prefix .. 'active', child) then helpers.drop_run(prefix, child, helpers) end
        redis.call('SREM', needs, parent)
        redis.call('ZREM', blocked, child)
      elseif known.kind == 'corrupt'
        -- anchor: lost-parent-buries-the-child
        or fate == 'lost' and math.floor(known.flags / 16) % 2 == 0 and redis.call('SISMEMBER', needs, parent) == 1 then
        local why = string.format('its parent %s is %s', parent, job and (job.outcome or 'dead') or 'gone')
        if known.kind == 'corrupt' then why = 'corrupt envelope' end
        if not redis.call('ZSCORE', prefix .. 'dead', child) then helpers.bury_job(prefix, known, child, now_ms, helpers, why) end
        redis.call('HSET', prefix .. 'run:' .. child, 'error', why)
        redis.call('ZREM', blocked, child)
        redis.call('DEL', needs)
      else
        -- It may read what its parent has left, however late it runs: let_go.
        if kept then redis.call('SADD', prefix .. 'heirs:' .. parent, child) end -- anchor: waiting-child-keeps-the-results
        redis.call('SREM', needs, parent)
        -- anchor: all-parents-ended-before-the-child
        if redis.call('SCARD', needs) == 0 then helpers.unblock_job(prefix, known, child, now_ms, turn, wakes, helpers) end
      end
      if fate ~= 'open' then
        redis.call('SREM', feeds, child)
        told = told + 1
        if told >= most then break end
      end
    end
    most = most - told
    if open and most > 0 or redis.call('EXISTS', feeds) == 0 then
      if not open then redis.call('SREM', prefix .. 'feeding', parent) end
      redis.call('ZREM', handing, member)
    end
    if most <= 0 then break end
  end
  return redis.call('EXISTS', handing) == 1
end
