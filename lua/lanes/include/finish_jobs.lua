-- End leases as finished: the envelope becomes a tombstone that outlives every late copy (rules 3 and 5), and slots of limits and
-- unique keys come free. items: {job key, run key, id, fence, nonce}. Returns 2 values an item: result (ok | repeated | stale)
-- and outcome. The wake lists that gain work are added to `wakes`.
-- helpers: envelope_open, token_state, free_slots, ready_lane, free_unique
local function finish_jobs(prefix, active, done, stats, items, now_ms, turn, wakes, helpers)
  local reply, ended, ids, runs, dated, finished = {}, {}, {}, {}, {}, 0
  for _, item in ipairs(items) do
    -- Most jobs were not delayed and have no unique key, and then the first 42 bytes of the envelope say all that a finish needs.
    local head = redis.call('GETRANGE', item.job_key, 0, 41)
    if #head == 42 and string.sub(head, 1, 2) == '\1J' and string.byte(head, 42) == 0 and string.byte(head, 4) % 4 < 2 then
      item.job = { kind = 'J', enqueue_nonce = string.sub(head, 17, 24), not_after_ms = struct.unpack('>I6', head, 25) }
    else
      item.job = helpers.envelope_open(redis.call('GETRANGE', item.job_key, 0, 700))
    end
    local state, outcome, limits = helpers.token_state(item.run_key, item.job, item.fence, item.nonce)
    -- The same token twice in one call: the second one repeats the first.
    if ended[item.id] == item.fence .. item.nonce then state, outcome = 'repeated', 'finished' end
    item.limits = limits
    if state == 'held' then
      ended[item.id] = item.fence .. item.nonce
      item.ends = true
      state, outcome = 'ok', 'finished'
    end
    -- Also for a repeat: a finish that was cut off after its tombstone leaves the lease behind.
    item.leaves = item.ends or (outcome == 'finished' and redis.call('ZSCORE', active, item.id))
    reply[#reply + 1] = state
    reply[#reply + 1] = outcome
  end
  for _, item in ipairs(items) do
    if item.ends then
      local tombstone = '\1T\1' .. (item.job.enqueue_nonce or '\0\0\0\0\0\0\0\0')
        .. struct.pack('>I8B', tonumber(item.fence), #item.nonce) .. item.nonce
      redis.call('SET', item.job_key, tombstone, 'PXAT', math.max(item.job.not_after_ms or 0, now_ms) + 20000)
      helpers.free_unique(prefix, item.job, item.id)
      finished = finished + 1
      dated[#dated + 1], dated[#dated + 2] = now_ms, item.id
    end
    if item.leaves then
      if not item.ends then item.limits = redis.call('HGET', item.run_key, 'limits') end
      if item.limits then helpers.free_slots(prefix, item.limits, item.id, turn, wakes, helpers) end
      ids[#ids + 1], runs[#runs + 1] = item.id, item.run_key
    end
  end
  for at = 1, #dated, 1000 do redis.call('ZADD', done, unpack(dated, at, math.min(at + 999, #dated))) end
  -- `active` goes last, so that without a repeat the sweep still finds what is left.
  for at = 1, #ids, 1000 do
    redis.call('DEL', unpack(runs, at, math.min(at + 999, #ids)))
    redis.call('ZREM', active, unpack(ids, at, math.min(at + 999, #ids)))
  end
  if finished > 0 then redis.call('HINCRBY', stats, 'finished', finished) end
  return reply
end
