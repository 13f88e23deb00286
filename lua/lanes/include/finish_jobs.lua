-- End leases as finished: the envelope becomes a tombstone that outlives every late copy (rules 3 and 5).
-- items: {job key, run key, id, fence, nonce}. Returns 2 values an item: result (ok | repeated | stale) and outcome.
-- helpers: envelope_open, token_state
local function finish_jobs(active, done, stats, items, now_ms, helpers)
  local reply, ended, jobs = {}, {}, {}
  for at, item in ipairs(items) do
    jobs[at] = helpers.envelope_open(redis.call('GETRANGE', item.job_key, 0, 700))
    local state, outcome = helpers.token_state(item.run_key, jobs[at], item.fence, item.nonce)
    -- The same token twice in one call: the second one repeats the first.
    if ended[item.id] == item.fence .. item.nonce then state, outcome = 'repeated', 'finished' end
    if state == 'held' then
      ended[item.id] = item.fence .. item.nonce
      item.ends = true
      state, outcome = 'ok', 'finished'
    end
    reply[#reply + 1] = state
    reply[#reply + 1] = outcome
  end
  local finished = 0
  for at, item in ipairs(items) do
    if item.ends then
      local tombstone = struct.pack('>BBBc8I8Bc0', 1, 84, 1, jobs[at].enqueue_nonce or '\0\0\0\0\0\0\0\0',
        tonumber(item.fence), #item.nonce, item.nonce)
      local until_ms = math.max(jobs[at].not_after_ms or 0, now_ms) + 20000
      redis.call('SET', item.job_key, tombstone, 'PXAT', until_ms)
      redis.call('ZADD', done, now_ms, item.id)
      finished = finished + 1
    end
    -- Also for a repeat: a finish that was cut off after its tombstone leaves these two behind. `active` goes last, so that
    -- without a repeat the sweep still finds what is left.
    if item.ends or (reply[at * 2] == 'finished' and redis.call('ZSCORE', active, item.id)) then
      redis.call('DEL', item.run_key)
      redis.call('ZREM', active, item.id)
    end
  end
  if finished > 0 then redis.call('HINCRBY', stats, 'finished', finished) end
  return reply
end
