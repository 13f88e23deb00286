-- End leases as finished: the envelope becomes a tombstone that outlives every late copy (rules 3 and 5), and slots of limits and
-- unique keys come free. Item number `at` is KEYS job:<id> and run:<id> from `keys_at` on, ARGV fence and nonce from `arguments_at` on.
-- Result number `at` is KEYS result:<id> after the items, ARGV number of its item, ttl_ms and the record from took_ms on. `waits_ms`:
-- until then somebody may wait for the end of a job.
-- Returns 2 values an item, result (ok | repeated | stale) and outcome; only their number where all are ok. The wake lists that gain
-- work are added to `wakes`. Then up to 100 jobs that waited for these are told (rule 25); the second value is true while more are
-- to be told.
-- helpers: envelope_open, token_state, free_slots, ready_lane, free_unique, tell_ended, check_types, hand_over and its own
local function finish_jobs(prefix, keys_at, arguments_at, now_ms, turn, wakes, helpers, waits_ms)
  local active, id_at = prefix .. 'active', #prefix + 5
  -- An item has 2 KEYS and 2 ARGV, a result 1 and 3.
  local results = (#ARGV - arguments_at - #KEYS + keys_at) / 2
  local count = (#KEYS - keys_at + 1 - results) / 2
  local reply, ids, runs, dated, ended, finished = {}, {}, {}, {}, {}, 0
  local seals, limits, leaves = {}, {}, {}
  -- Most queues have no job that another one waits for: they pay for this one look.
  local feeding = redis.call('EXISTS', prefix .. 'feeding') == 1
  for _, zset in ipairs(feeding and { 'handing', 'blocked', 'due', 'dead', 'keeping' } or {}) do redis.call('ZCARD', prefix .. zset) end
  for at = 1, count do
    local job_key, run_key = KEYS[keys_at + 2 * at - 2], KEYS[keys_at + 2 * at - 1]
    local fence, nonce = ARGV[arguments_at + 2 * at - 2], ARGV[arguments_at + 2 * at - 1]
    local run = redis.pcall('HMGET', run_key, 'fence', 'nonce', 'limits', 'seal')
    if run.err then helpers.check_types({}, { run_key }, {}) end
    local state, outcome = run[4] and run[1] == fence and run[2] == nonce and 'held' or nil, '' -- anchor: fence-checked
    if state then
      seals[at], limits[at] = run[4], run[3]
    else
      local job = helpers.envelope_open(redis.call('GETRANGE', job_key, 0, 700))
      state, outcome = helpers.token_state(run_key, job, fence, nonce)
    end
    -- The same token twice in one call: the second one repeats the first.
    if ended[job_key] then state, outcome = 'repeated', 'finished' end
    if state == 'held' then
      ended[job_key] = true
      state, outcome, leaves[at] = 'ok', 'finished', true
      finished = finished + 1
    elseif outcome == 'finished' and not ended[job_key] and redis.call('ZSCORE', active, string.sub(job_key, id_at)) then
      -- A finish that was cut off after its tombstone has left the lease behind.
      leaves[at], limits[at] = true, redis.call('HGET', run_key, 'limits')
    end
    reply[2 * at - 1], reply[2 * at] = state, outcome
  end
  for at = 1, results do
    local place = arguments_at + 2 * count + 3 * at - 3
    local item = tonumber(ARGV[place])
    -- Before the tombstone: cut off in between, the token still holds and the next copy writes both.
    if leaves[item] and seals[item] then -- anchor: only-the-holder-keeps-a-result
      local record = '{"ok":true,"ended_ms":' .. string.format('%d', now_ms) .. ',"fence":' .. ARGV[arguments_at + 2 * item - 2] .. ','
      -- anchor: results-live-for-their-full-time
      local until_ms, id = now_ms + tonumber(ARGV[place + 1]), string.sub(KEYS[keys_at + 2 * item - 2], id_at)
      -- Kept for those that wait for it, however late they run: see let_go.
      local waited_for = feeding and redis.call('SISMEMBER', prefix .. 'feeding', id) == 1
      if waited_for then -- anchor: parents-result-is-kept-for-waiting-children
        redis.call('ZADD', prefix .. 'keeping', 'NX', now_ms, id)
        until_ms = until_ms + 281474976710656
      end
      -- anchor: each-result-is-stored-with-its-job
      redis.call('SET', KEYS[keys_at + 2 * count + at - 1], record .. ARGV[place + 2], 'PXAT', string.format('%d', until_ms))
    end
  end
  for at = 1, count do
    if leaves[at] then
      local job_key, seal = KEYS[keys_at + 2 * at - 2], seals[at]
      local id = string.sub(job_key, id_at)
      if seal then
        if helpers.events then
          local job = helpers.envelope_open(redis.call('GETRANGE', job_key, 0, 700))
          table.insert(helpers.events, { 'finished', id, job and job.name })
        end
        local fence, nonce = ARGV[arguments_at + 2 * at - 2], ARGV[arguments_at + 2 * at - 1]
        local tombstone = '\1T\1' .. string.sub(seal, 1, 8) .. struct.pack('>I8B', tonumber(fence), #nonce) .. nonce
        -- anchor: tombstone-outlives-late-copies
        redis.call('SET', job_key, tombstone, 'PXAT', math.max(struct.unpack('>I6', seal, 9), now_ms) + 20000)
        if #seal > 14 then helpers.free_unique(prefix, { unique = string.sub(seal, 15) }, id) end
        dated[#dated + 1], dated[#dated + 2] = now_ms, id
      end
      if limits[at] then helpers.free_slots(prefix, limits[at], id, turn, wakes, helpers) end
      ids[#ids + 1], runs[#runs + 1] = id, KEYS[keys_at + 2 * at - 1]
      -- anchor: children-are-told-of-the-end
      if feeding and redis.call('SISMEMBER', prefix .. 'feeding', id) == 1 then redis.call('ZADD', prefix .. 'handing', now_ms, '+' .. id) end
    end
  end
  -- anchor: every-finished-job-is-listed
  for at = 1, #dated, PIECE do redis.call('ZADD', prefix .. 'done', unpack(dated, at, math.min(at + PIECE - 1, #dated))) end
  -- `active` goes last, so that without a repeat the sweep still finds what is left.
  for at = 1, #ids, PIECE do -- anchor: every-finished-lease-ends
    redis.call('DEL', unpack(runs, at, math.min(at + PIECE - 1, #ids)))
    redis.call('ZREM', active, unpack(ids, at, math.min(at + PIECE - 1, #ids)))
  end
  if finished > 0 then redis.call('HINCRBY', prefix .. 'stats', 'finished', finished) end
  local more = feeding and helpers.hand_over(prefix, now_ms, turn, 100, wakes, helpers)
  if waits_ms and tonumber(waits_ms) > now_ms then
    for at = 2, #dated, 2 do helpers.tell_ended(prefix, dated[at]) end
  end
  return finished == count and count or reply, more
end
