-- Tell at most `most` jobs that a parent of theirs has ended (rule 25): who has no other parent left goes on, who must not go on
-- without it is buried, and so are its own children in a later call. `handing` holds the parents, `+` (finished) or `-` before their
-- id, until all of their children are told. Returns whether some are left; wake lists that gain work are added to `wakes`.
-- helpers: envelope_open, parent_fate, unblock_job, due_member, to_lane, lane_score, bury_job, free_unique, error_ttl, tell_ended
local function hand_over(prefix, now_ms, turn, most, wakes, helpers)
  local handing, blocked = prefix .. 'handing', prefix .. 'blocked'
  for _, member in ipairs(redis.call('ZRANGE', handing, 0, 99)) do
    local parent = string.sub(member, 2)
    local feeds = prefix .. 'feeds:' .. parent
    local job = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. parent, 0, 700))
    local fate = helpers.parent_fate(prefix, job, parent) or string.sub(member, 1, 1) == '+' and 'done' or 'lost'
    -- An open one was requeued, or its id is used again: its children wait for its next end.
    local children = fate == 'open' and {} or redis.call('SRANDMEMBER', feeds, most)
    table.sort(children)
    for _, child in ipairs(children) do
      local needs = prefix .. 'needs:' .. child
      local known = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. child, 0, 700))
      if not redis.call('ZSCORE', blocked, child) or not known or known.kind == 'T' then
        -- It was removed, or an enqueue was cut off before it made the job.
        redis.call('SREM', needs, parent)
        redis.call('ZREM', blocked, child)
      elseif known.kind == 'corrupt'
        or fate == 'lost' and math.floor(known.flags / 16) % 2 == 0 and redis.call('SISMEMBER', needs, parent) == 1 then
        local why = string.format('its parent %s is %s', parent, job and (job.outcome or 'dead') or 'gone')
        if known.kind == 'corrupt' then why = 'corrupt envelope' end
        if not redis.call('ZSCORE', prefix .. 'dead', child) then helpers.bury_job(prefix, known, child, now_ms, helpers, why) end
        redis.call('HSET', prefix .. 'run:' .. child, 'error', why)
        redis.call('ZREM', blocked, child)
        redis.call('DEL', needs)
      else
        redis.call('SREM', needs, parent)
        if redis.call('SCARD', needs) == 0 then helpers.unblock_job(prefix, known, child, now_ms, turn, wakes, helpers) end
      end
      redis.call('SREM', feeds, child)
    end
    most = most - #children
    if fate == 'open' or redis.call('EXISTS', feeds) == 0 then
      if fate ~= 'open' then redis.call('SREM', prefix .. 'feeding', parent) end
      redis.call('ZREM', handing, member)
    end
    if most <= 0 then break end
  end
  return redis.call('EXISTS', handing) == 1
end
