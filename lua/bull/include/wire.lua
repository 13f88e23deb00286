-- @include bull_read
-- @include bull_ends
-- @include bull_due
-- @include bull_looks
-- Bull's wire format (1.0): lists `wait`, `active` and `paused`, sorted set `delayed`, sets `completed` and `failed`, a hash for each
-- job, `<id>:lock`, the counter `id`, `meta-paused`. Jobs wait in `wait`, while the queue is paused in `paused`, and are taken from
-- the right.
local function wire(root, prefix, queue, layout, settings, now_ms, tools)
  local bull, keys = {}, { meta = root .. 'meta-paused', jobs = root .. 'jobs' }
  for _, name in ipairs({ 'wait', 'active', 'paused', 'delayed', 'completed', 'failed', 'id' }) do keys[name] = root .. name end
  bull_read(bull, keys, root, tools)
  bull_ends(bull, keys, root, prefix, now_ms)
  bull_due(bull, keys, root, now_ms)
  bull_looks(bull, keys, root, prefix, now_ms)

  -- Where the counter was lost, what it says may be the id of a job: that one would be overwritten.
  function bull.new_id(given)
    while given == '' do
      local id = string.format('%.0f', redis.call('INCR', keys.id))
      if redis.call('EXISTS', root .. id) == 0 then given = id end
    end
    return given
  end

  function bull.admit()
    return nil
  end

  -- None while the queue is paused, also those that the original has put into `wait` meanwhile.
  function bull.candidates(from, count)
    if redis.call('EXISTS', keys.meta) == 1 then return {}, 0 end
    local ids, found = redis.call('LRANGE', keys.wait, -from - count, -from - 1), {}
    for at = #ids, 1, -1 do found[#found + 1] = { id = ids[at], place = 'wait' } end
    return found, #ids == count and from + count or 0
  end

  function bull.refuses()
    return false
  end

  return bull
end
