-- Lease up to `ask.limit` jobs under (fence, nonce). Returns kind, jobs (7 values each), the ids buried as corrupt, those of
-- `ask.corrupt`, which the promotion before it has buried, among them, and whether jobs with a crash behind them were passed by.
-- keys: sweep, active, ready, dead, stats, record
-- ask: prefix, incarnation, counter, limit, lease_ms, not_after_ms, owner, crashed_max, corrupt
-- helpers: envelope_open, is_leased, bury_job, note_lease
local function claim_jobs(keys, ask, now_ms, helpers)
  local nonce = ask.incarnation .. ':' .. ask.counter
  local jobs, corrupt, unread = {}, ask.corrupt, {}
  local record = redis.call('GET', keys.record)
  if record then
    local words = {}
    for word in string.gmatch(record, '%S+') do words[#words + 1] = word end
    if tonumber(words[1]) > tonumber(ask.counter) then return 'stale', jobs, corrupt end
    if words[1] == ask.counter then
      for at = 2, #words, 2 do
        local id = words[at]
        if words[at + 1] == 'corrupt' then corrupt[#corrupt + 1] = id end
        local run = redis.call('HMGET', ask.prefix .. 'run:' .. id, 'fence', 'nonce', 'claims', 'failures', 'crashes')
        local deadline_ms = redis.call('ZSCORE', keys.active, id)
        local raw = redis.call('GET', ask.prefix .. 'job:' .. id)
        if raw and deadline_ms and run[1] == words[at + 1] and run[2] == nonce then
          local fields = { id, tonumber(run[1]), tonumber(deadline_ms), tonumber(run[3]), tonumber(run[4]), tonumber(run[5]), raw }
          for _, field in ipairs(fields) do jobs[#jobs + 1] = field end
        end
      end
      return 'repeated', jobs, corrupt
    end
  end
  if now_ms > ask.not_after_ms then return 'void', jobs, corrupt end

  -- Read everything: what to lease, what to skip, what to bury. A page of 100 bounds the entries that lead nowhere; what is passed
  -- by must not hide what lies behind it, so for it there are more pages, up to 2,000 entries (some 3 ms).
  local picked, skipped, bytes, crashed, passed = {}, {}, 0, 0, false
  local lane = redis.call('ZRANGE', keys.ready, 0, 0)[1]
  local lane_key = lane and ask.prefix .. 'lane:' .. lane
  local at, looked, full = 0, lane and ask.limit + 99 or -1, false
  while at <= looked do
    local page = redis.call('ZRANGE', lane_key, at, looked)
    local passed_here = 0
    for _, id in ipairs(page) do
      full = full or #picked >= ask.limit
      if full then break end
      local run_key = ask.prefix .. 'run:' .. id
      local run = redis.call('HMGET', run_key, 'fence', 'claims', 'failures', 'crashes')
      local crashes = tonumber(run[4] or 0)
      if crashes > 0 and crashed >= ask.crashed_max then
        passed_here = passed_here + 1
      else
        local raw = redis.call('GET', ask.prefix .. 'job:' .. id)
        local job = helpers.envelope_open(raw)
        if not job or job.kind == 'T' or helpers.is_leased(run_key, keys.active, id) then
          skipped[#skipped + 1] = id
        elseif job.kind == 'corrupt' then
          unread[#unread + 1] = id
        elseif #picked > 0 and bytes + #raw > 1048576 then
          full = true
        else
          bytes = bytes + #raw
          crashed = crashed + (crashes > 0 and 1 or 0)
          picked[#picked + 1] = { id = id, raw = raw, run_key = run_key, fence = math.max(tonumber(run[1] or 0) + 1, now_ms),
            claims = tonumber(run[2] or 0) + 1, failures = tonumber(run[3] or 0), crashes = crashes }
        end
      end
    end
    passed = passed or passed_here > 0
    at = looked + 1
    if passed_here > 0 and not full then looked = math.min(looked + passed_here, 1999 + ask.limit) end
  end

  -- Write. `active` first: until the job leaves its lane, only the token that `run` names counts.
  local deadline_ms, leases = now_ms + ask.lease_ms, { ask.counter }
  if #picked > 0 then helpers.note_lease(keys.sweep, ask.lease_ms) end
  for _, job in ipairs(picked) do
    local fence = string.format('%d', job.fence)
    redis.call('ZADD', keys.active, deadline_ms, job.id)
    redis.call('HSET', job.run_key, 'fence', fence, 'nonce', nonce, 'renewal', 0, 'owner', ask.owner,
      'claims', job.claims, 'failures', job.failures, 'crashes', job.crashes)
    redis.call('ZREM', lane_key, job.id)
    leases[#leases + 1] = job.id .. ' ' .. fence
    for _, field in ipairs({ job.id, job.fence, deadline_ms, job.claims, job.failures, job.crashes, job.raw }) do
      jobs[#jobs + 1] = field
    end
  end
  for _, id in ipairs(unread) do
    helpers.bury_job(keys.dead, keys.stats, id, now_ms)
    redis.call('HSET', ask.prefix .. 'run:' .. id, 'error', 'corrupt envelope')
    redis.call('ZREM', lane_key, id)
    corrupt[#corrupt + 1] = id
  end
  for _, id in ipairs(skipped) do redis.call('ZREM', lane_key, id) end
  if lane and redis.call('ZCARD', lane_key) == 0 then redis.call('ZREM', keys.ready, lane) end
  for _, id in ipairs(corrupt) do leases[#leases + 1] = id .. ' corrupt' end
  redis.call('SET', keys.record, table.concat(leases, ' '), 'PXAT', math.max(ask.not_after_ms, deadline_ms) + ask.lease_ms)
  return #picked > 0 and 'leased' or 'empty', jobs, corrupt, passed
end
