#!lua
-- Enqueue one job: into its lane, into `due` while it is delayed, or into `blocked` while it waits for its
-- parents (rule 25). A taken unique or dedup key keeps it out (rules 3 and 23). Repeating the call changes
-- nothing.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   seq      string  the last sequence
--   job      string  job:<id>, the envelope or its tombstone
--   run      string  run:<id>
--   classes  hash    class -> its target
--   parked   hash    lane -> the limit that it waits for
--   ready    zset    ready lanes of the class
--   lane     zset    id by priority band and sequence
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   wake     list    at most one marker
--   stats    hash    counters
--   unique   string  unique:<key>, the id of the job that has it
--   dedup    string  dedup:<key>, the id of the job that opened the window
--   family   1 for each key of a job with parents or callbacks, or one that expires: blocked, feeding,
--            handing, done, keeping, needs:<id>, expiring, feeds:<id>
--   parents  4 for each parent: job:<id>, feeds:<id>, heirs:<id>, result:<id>
-- ARGV
--   now_ms        '' or the time of a test
--   prefix        prefix of the queue's keys
--   id            job id
--   class         class of the job
--   lane_name     lane of the job
--   target        what the class requires of a worker, as JSON; '' = nothing
--   unique_key    '' = none
--   dedup_key     '' = none
--   dedup_ms      number: length of the window
--   delay_ms      number: 0 = claimable at once; below 0 the time itself, which may have passed
--   not_after_ms  number: server time after which this call is void
--   head          envelope before the fields that the server sets: priority, flags
--   tail          envelope after them, from the enqueue nonce on, if it has one
--   more          1 for each thing that few jobs have: expires_ms (0 = never), and the envelopes of the jobs
--                 that its success and its failure make ('' = none)
-- REPLY srv_us, created | repeated | duplicate | refused, state, fence (created: sequence), id of the
--       existing job; or orphan and the id of the parent of which nothing is known; or moved and the number
--       of shards of the queue, which takes new jobs elsewhere
-- USES children/children: block_job, keep_results, read_parents
--      core/call: check_types, server_us, settled
--      core/envelope: envelope_open, envelope_start
--      core/job: enqueue_known, reject_enqueue, unique_holder
--      core/lane: due_member, lane_score
--      core/run: run_pack
--      core/wake: append_events, new_class, note_class

-- The fast path: a plain job has no parents, no delay, and no unique or dedup key. Its call reads only the
-- keys that it writes, each of them once, because each further command costs more than the rest of the
-- script.
local plain = #KEYS == 15 and delay_ms == 0 and unique_key == '' and dedup_key == ''
local raw, noted = redis.pcall('GET', job), redis.pcall('HMGET', stats, 'turn', 'events', 'moved')
local score, size, markers = redis.pcall('ZSCORE', ready, lane_name), redis.pcall('ZCARD', lane),
  redis.pcall('LLEN', wake)
if type(raw) == 'table' or noted.err or type(score) == 'table' or type(size) == 'table'
    or type(markers) == 'table' then
  check_types({ ready, lane }, { stats }, { wake }, { job })
end
-- During a migration of the slot a node refuses a call by itself if one of KEYS is missing, as the key of a
-- new job is (rule 27).
if raw or noted[2] or not plain then settled(prefix) end
if raw or not plain then check_types({ due, active, dead }, { sweep }, {}, { run, seq, unique, dedup }) end
-- The class of a ready lane is known, and the lane is not parked.
local class_known, is_parked = 1, 0
if not score then
  class_known, is_parked = redis.pcall('HEXISTS', classes, class), redis.pcall('HEXISTS', parked, lane_name)
  if type(class_known) == 'table' or type(is_parked) == 'table' then
    check_types({}, { classes, parked }, {})
  end
end
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local first_byte, flags = string.byte(head, 1, 2)
local priority = first_byte % 16
flags = flags or 0
local nonce = math.floor(flags / 64) % 2 == 1 and string.sub(tail, 1, 8) or ''
local known = envelope_open(raw or nil)
local result, state, fence, first = enqueue_known(prefix, known, nonce, id)
if result then -- anchor: enqueue-is-recognized-when-repeated
  -- If the dedup window is not open, an earlier copy was cut off before its last write.
  local until_ms = result == 'repeated' and dedup_key ~= '' and known.kind == 'J'
    and known.enqueued_ms + dedup_ms or 0
  if until_ms > now_ms then redis.call('SET', dedup, id, 'NX', 'PXAT', until_ms) end
  -- Keep the tombstone long enough, because a late copy must get the same answer.
  if result == 'duplicate' and known.kind == 'T' then
    redis.call('PEXPIREAT', job, not_after_ms + LATE_COPY_MS, 'GT')
  end
  return { srv_us, result, state, fence, first }
end
if now_ms > not_after_ms then return { srv_us, 'refused', '', 0, id } end -- anchor: late-enqueue-is-void
local waits_for, lost, unknown, results = {}, {}, nil, {}
if #KEYS > 15 then
  check_types({ KEYS[16], KEYS[18], KEYS[19], KEYS[20], KEYS[22] }, {}, {})
  for _, key in ipairs({ KEYS[17], KEYS[21], KEYS[23] }) do redis.call('SCARD', key) end
  waits_for, lost, unknown, results = read_parents(prefix, 24, flags)
end
-- While resharding, this shard accepts only children of local parents, schedule ticks and reroutes
-- (docs/guides/shards.md).
local moved = noted[3] and string.sub(id, 1, 5) ~= 'cron:' and string.sub(id, -8) ~= '>reroute'
  and (string.byte(noted[3]) ~= 49 or unknown or #KEYS < 24)
if unknown and not moved then
  reject_enqueue(job, nonce, unknown, not_after_ms + LATE_COPY_MS, 4)
  return { srv_us, 'orphan', '', 0, unknown }
end
if unique_key ~= '' or dedup_key ~= '' then
  first, state, fence = unique_holder(prefix, unique_key, dedup_key, id)
  if first then
    -- anchor: late-copy-of-a-rejected-enqueue-stays-out
    reject_enqueue(job, nonce, first, not_after_ms + LATE_COPY_MS, 3)
    return { srv_us, 'duplicate', state, fence, first }
  end
end
-- Checked last: duplicates and rejections must be answered by this shard until their records have moved.
if moved then return { srv_us, 'moved', '', 0, string.sub(noted[3], 3) } end
local virtual_time, events = tonumber(noted[1] or 0), noted[2] and { keep = noted[2] }
local new = class_known == 0 and new_class(prefix, classes, class, target)

-- The first write is also the check of its key.
local sequence = redis.pcall('INCR', seq)
if type(sequence) == 'table' then
  check_types({}, {}, {}, { seq })
  error(sequence)
end
-- 2^48: beyond it a FIFO score would leave its band (rule 16).
-- anchor: sequences-end-at-2-48
if sequence > U48_MAX then
  redis.call('INCRBY', seq, -1)
  return redis.error_reply('IRONCLAIM sequence exhausted at 2^48')
end
local due_ms = delay_ms > 0 and now_ms + delay_ms or -delay_ms -- anchor: delay-counts-from-the-servers-clock
local envelope = envelope_start(head, sequence, now_ms, due_ms, not_after_ms) .. tail
if new then note_class(prefix, classes, class, target, now_ms) end
-- The index entry is written before the job, because an entry without a job is skipped, but a job without an
-- entry is lost (rule 1).
-- anchor: late-children-keep-results
if results and results[1] then keep_results(prefix, id, results, now_ms) end
local expires_ms, calls = 0, nil
if #ARGV > 13 then
  expires_ms, calls = tonumber(ARGV[14]), ARGV[15] .. ARGV[16] ~= '' and string.format('%d', sequence)
end
if expires_ms > 0 then redis.call('ZADD', KEYS[22], now_ms + expires_ms, due_member(sequence, id)) end
if calls then
  redis.call('SADD', KEYS[17], id)
  redis.call('SADD', KEYS[23], '>' .. calls)
end
-- anchor: index-entry-before-the-job, 2 lines
local gains
if waits_for[1] then
  block_job(prefix, id, waits_for, lost, now_ms)
elseif due_ms > 0 then -- anchor: delayed-jobs-wait
  local member = due_member(sequence, id)
  redis.call('ZADD', due, due_ms, member)
  gains = redis.call('ZRANGE', due, 0, 0)[1] == member
else
  -- The same as to_lane, with the values that were read above.
  local ready_score = (10 - priority) * BAND + virtual_time
  gains = is_parked == 0
  -- anchor: urgent-new-job-moves-its-lane-ahead
  if is_parked == 0 and ready_score < (tonumber(score) or math.huge) then redis.call('ZADD', ready, 'LT', ready_score, lane_name) end
  redis.call('ZADD', lane, lane_score(priority, flags, sequence), id)
end
-- One write for the job and its own keys. A key without its job would never be removed, and a job without its
-- callbacks would never make them.
local own = { job, envelope }
if unique_key ~= '' then own[3], own[4] = unique, id end
if #KEYS > 23 then own[#own + 1], own[#own + 2] = run, run_pack({ heir = '1' }) end
if calls then
  own[#own + 1], own[#own + 2] = prefix .. 'calls:' .. calls,
    struct.pack('>I4', #ARGV[15]) .. ARGV[15] .. ARGV[16]
end
-- anchor: job-after-its-index-entry, 2 lines
redis.call(own[3] and 'MSET' or 'SET', unpack(own))
if dedup_key ~= '' then redis.call('SET', dedup, id, 'PXAT', now_ms + dedup_ms) end
if gains and markers == 0 then redis.call('RPUSH', wake, '1') end -- anchor: new-work-leaves-a-marker
if events then
  events[1] = { 'created', id, envelope_open(envelope).name,
    waits_for[1] and 'blocked' or due_ms > 0 and 'delayed' or 'waiting' }
end
if events then append_events(prefix .. 'events', events) end
return { srv_us, 'created', '', sequence, id }
