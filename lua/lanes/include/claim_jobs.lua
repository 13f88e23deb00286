-- Lease up to `ask.limit` jobs of the classes under (fence, nonce). Returns kind, jobs (7 values each), the ids buried as corrupt,
-- those of `ask.corrupt`, which the promotion before it has buried, among them, and the classes that were open, nil when it did not
-- look.
-- keys: sweep, active, stats, record
-- ask: prefix, classes, incarnation, counter, limit, lease_ms, not_after_ms, owner, crashed_max, least, most, corrupt, turn
-- helpers: claim_known, open_classes, pick_jobs, limit_room, envelope_kind, envelope_seal, envelope_cost, bury_job, free_unique,
--   note_lease, count_leases, rate_back, leave_lane, check_types, error_ttl, tell_ended
local function claim_jobs(keys, ask, now_ms, helpers)
  local nonce, prefix, corrupt = ask.incarnation .. ':' .. ask.counter, ask.prefix, ask.corrupt
  local known, jobs = helpers.claim_known(prefix, keys.active, keys.record, nonce, ask.counter, corrupt)
  if known then return known, jobs, corrupt end -- anchor: claim-is-recognized-when-repeated
  if now_ms > ask.not_after_ms then return 'void', jobs, corrupt end -- anchor: late-claim-is-void

  local open, closed, limited = helpers.open_classes(prefix, ask.classes, now_ms, helpers)
  local picked, lanes, turn = helpers.pick_jobs(open, limited, keys.active, ask, now_ms, helpers)

  -- Write. `active` first: until the job leaves its lane, only the token that `run` names counts. What counts against a limit is
  -- named in `run` before it counts, so whatever ends the lease frees it.
  local deadline_ms, leases, entries, counted = now_ms + ask.lease_ms, { ask.counter }, {}, {}
  if #picked > 0 then helpers.note_lease(keys.sweep, ask.lease_ms) end
  for at, job in ipairs(picked) do entries[2 * at - 1], entries[2 * at] = deadline_ms, job.id end
  -- anchor: every-picked-job-is-leased
  for at = 1, #entries, PIECE do redis.call('ZADD', keys.active, unpack(entries, at, math.min(at + PIECE - 1, #entries))) end
  for at, job in ipairs(picked) do
    local fence, words = string.format('%d', job.fence), ''
    for round = 1, (job.class.limit or job.limit) and 2 or 0 do
      local limit = round == 1 and job.class.limit and job.class or round == 2 and job.limit
      if limit then
        words = words .. ' ' .. limit.limit
        local group = counted[limit.limit] or { limit = limit, ids = {}, fences = {}, costs = {} }
        group.ids[#group.ids + 1], group.fences[#group.fences + 1], group.costs[#group.costs + 1] = job.id, fence, job.cost
        counted[limit.limit] = group
      end
    end
    local seal = helpers.envelope_seal(job.raw)
    -- What a fresh hash does not say is 0 and ''.
    if job.ran or words ~= '' then
      redis.call('HSET', job.run_key, 'fence', fence, 'nonce', nonce, 'seal', seal, 'renewal', 0, 'owner', ask.owner, 'claims', job.claims,
        'failures', job.failures, 'crashes', job.crashes, 'limits', words)
    else
      redis.call('HSET', job.run_key, 'fence', fence, 'nonce', nonce, 'seal', seal, 'owner', ask.owner, 'claims', job.claims)
    end
    leases[at + 1] = job.id .. ' ' .. fence -- anchor: claim-leaves-the-envelope-whole
    if helpers.events then table.insert(helpers.events, { 'claimed', job.id, helpers.envelope_open(job.raw).name, ask.owner }) end
    local slot = 7 * at - 6
    jobs[slot], jobs[slot + 1], jobs[slot + 2], jobs[slot + 3] = job.id, job.fence, deadline_ms, job.claims
    -- anchor: each-job-is-claimed-with-its-own-payload
    jobs[slot + 4], jobs[slot + 5], jobs[slot + 6] = job.failures, job.crashes, job.raw
  end
  for _, group in pairs(counted) do helpers.count_leases(prefix, group.limit, group, deadline_ms, now_ms, helpers) end
  for _, lane in ipairs(lanes) do
    for _, id in ipairs(lane.unread) do
      helpers.bury_job(prefix, {}, id, now_ms, helpers, 'corrupt envelope')
      redis.call('HSET', prefix .. 'run:' .. id, 'error', 'corrupt envelope')
      corrupt[#corrupt + 1] = id
    end
    helpers.leave_lane(prefix, lane, now_ms, helpers)
  end
  if turn > ask.turn then redis.call('HSET', keys.stats, 'turn', string.format('%d', turn)) end
  for _, class in ipairs(open) do
    if class.room <= 0 then closed[#closed + 1] = class end
  end
  for _, class in ipairs(closed) do
    local _, until_ms, ahead = helpers.limit_room(prefix, class.limit, class.definition, now_ms, class.meter.need)
    helpers.rate_back(prefix, class.limit, ahead, now_ms)
    if until_ms then redis.call('ZADD', prefix .. 'rest', until_ms, 'w:' .. string.sub(class.limit, 3)) end
  end
  for _, id in ipairs(corrupt) do leases[#leases + 1] = id .. ' corrupt' end
  redis.call('SET', keys.record, table.concat(leases, ' '), 'PXAT', math.max(ask.not_after_ms, deadline_ms) + ask.lease_ms)
  return #picked > 0 and 'leased' or 'empty', jobs, corrupt, open
end
