-- Lease up to `ask.limit` jobs under (fence, nonce). Returns kind, jobs (7 values each), and the ids that were set aside.
-- keys: sweep, active, stats, record
-- ask: those of foreign_scan, and incarnation, counter, lease_ms, not_after_ms, owner
-- helpers: foreign_known, foreign_token, foreign_scan, is_paused, limit_room, count_leases, rate_back, note_lease, wake_push, events
local function foreign_claim(prefix, format, keys, ask, now_ms, helpers)
  local nonce, corrupt = ask.incarnation .. ':' .. ask.counter, {}
  local known, jobs = helpers.foreign_known(prefix, format, keys.record, nonce, ask.counter, corrupt, helpers)
  if known then return known, jobs, corrupt end
  if now_ms > ask.not_after_ms then return 'void', jobs, corrupt end

  local picked, broken, scan = helpers.foreign_scan(prefix, format, ask, now_ms, helpers)
  local until_ms, leases, counted = now_ms + ask.lease_ms, { ask.counter }, {}
  if #picked > 0 then helpers.note_lease(keys.sweep, ask.lease_ms) end
  for _, one in ipairs(picked) do
    local run, fence = prefix .. 'run:' .. one.id, string.format('%d', one.fence)
    local lease = { token = fence .. ':' .. nonce, fence = fence, nonce = nonce, until_ms = until_ms, lease_ms = ask.lease_ms, owner = ask.owner }
    -- Ours before the wire: cut off in between, the wire still has the job waiting, and the token counts for nothing without it.
    redis.call('HSET', run, 'fence', fence, 'nonce', nonce, 'owner', ask.owner, 'claims', one.claims, 'renewal', 0, 'ending', '',
      'limits', one.room.limit or '')
    if one.known then redis.call('PERSIST', run) end
    redis.call('ZADD', keys.active, until_ms, one.id)
    if format.take(one.id, one.job, one.place, lease) == false then
      redis.call('ZREM', keys.active, one.id)
      redis.call('HSET', run, 'nonce', '', 'limits', '')
      redis.call('PEXPIREAT', run, string.format('%d', now_ms + 20000))
    else
      leases[#leases + 1] = one.id .. ' ' .. fence
      for _, field in ipairs({ one.id, one.fence, until_ms, one.claims, one.job.failures or 0, one.crashes, one.job.body }) do jobs[#jobs + 1] = field end
      if one.room.limit then
        local group = counted[one.room.limit] or { limit = one.room, ids = {}, fences = {}, costs = {} }
        group.ids[#group.ids + 1], group.fences[#group.fences + 1], group.costs[#group.costs + 1] = one.id, fence, 1
        counted[one.room.limit] = group
      end
      if helpers.events then table.insert(helpers.events, { 'claimed', one.id, one.job.name, ask.owner }) end
    end
  end
  for _, group in pairs(counted) do helpers.count_leases(prefix, group.limit, group, until_ms, now_ms, helpers) end
  for _, one in ipairs(broken) do
    format.set_aside(one.id, one.place, one.why)
    local shown = string.sub(string.gsub(one.id, '[^%w_.:>-]', '?'), 1, 256)
    corrupt[#corrupt + 1] = shown == '' and '?' or shown
    redis.call('HINCRBY', keys.stats, 'aside', 1)
    if helpers.events then table.insert(helpers.events, { 'buried', corrupt[#corrupt], '', one.why }) end
  end
  if format.scanned then format.scanned() end
  if scan.value ~= (scan.kept or nil) then
    if scan.value then redis.call('HSET', prefix .. 'scan', scan.field, scan.value) else redis.call('HDEL', prefix .. 'scan', scan.field) end
    redis.call('PEXPIRE', prefix .. 'scan', 60000)
  end
  if scan.more then helpers.wake_push(prefix .. 'wake') end
  for _, id in ipairs(corrupt) do leases[#leases + 1] = id .. ' corrupt' end
  redis.call('SET', keys.record, table.concat(leases, ' '), 'PXAT', string.format('%d', math.max(ask.not_after_ms, until_ms) + ask.lease_ms))
  return #jobs > 0 and 'leased' or 'empty', jobs, corrupt
end
