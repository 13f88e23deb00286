#!lua
-- Enqueue one job: into its lane, into `due` while it is delayed, or into `blocked` while it waits for its
-- parents (rule 25). A taken unique or dedup key keeps it out (rules 3 and 23). Repeating the call changes
-- nothing.
--
-- KEYS
--   seq      string  the last sequence
--   job      string  job:<id>, the envelope or its tombstone
--   ready    zset    ready lanes of the class
--   lane     zset    id by priority band and sequence
--   stats    hash    counters
--   own      10 for each job that is not plain: sweep, classes, parked, wake:<class>, run:<id>, due, active,
--            dead, unique:<key>, dedup:<key>
--   family   1 for each key of a job with parents or callbacks, or one that expires: blocked, feeding,
--            handing, done, keeping, needs:<id>, expiring, feeds:<id>
--   parents  4 for each parent: job:<id>, feeds:<id>, heirs:<id>, result:<id>
-- ARGV
--   now_ms        '' or the time of a test
--   prefix        prefix of the queue's keys
--   not_after_ms  number: server time after which this call is void
--   head          envelope before the fields that the server sets: priority, flags
--   tail          envelope after them, from the enqueue nonce on, if it has one
--   target        1 for each job that is not plain, or whose class requires something of a worker: that, as
--                 JSON; '' = nothing
--   own           4 for each job that is not plain: its unique key and its dedup key ('' = none), dedup_ms,
--                 the length of that window, and delay_ms, 0 = claimable at once; below 0 the time itself,
--                 which may have passed
--   more          1 for each thing that few jobs have: expires_ms (0 = never), and the envelopes of the jobs
--                 that its success and its failure make ('' = none)
-- REPLY srv_us and the sequence of the job that was created; or srv_us, repeated | duplicate | refused,
--       state, fence, id of the existing job; or orphan and the id of the parent of which nothing is known;
--       or moved and the number of shards of the queue, which takes new jobs elsewhere
-- RARELY append_events, block_job, check_types, due_member, enqueue_known, envelope_open, keep_results,
--        new_class, note_class, read_parents, reject_enqueue, run_pack, settled, unique_holder
-- USES children/children: block_job, keep_results, read_parents
--      core/call: check_types, server_us, settled
--      core/envelope: envelope_open, envelope_start
--      core/job: enqueue_known, reject_enqueue, unique_holder
--      core/lane: due_member, lane_score
--      core/run: run_pack
--      core/wake: append_events, new_class, note_class

-- An ordinary enqueue is that of a plain job, which has no parents, callbacks, delay, expiry, unique or dedup
-- key, under a new id, in a queue that keeps no events and takes new jobs, and of a class that has had jobs.
-- Into a lane that is ready it costs seven commands. Each key and argument of a call costs a seventh of a
-- command. So the names of others are made of the prefix, and id and lane of their keys.
local id, lane_name = string.sub(job, #prefix + 5), string.sub(lane, #prefix + 6)
local raw, noted = redis.pcall('GET', job), redis.pcall('HMGET', stats, 'turn', 'events', 'moved')
-- The clock of a test is in a key that the node may not have any more.
if now_ms ~= '' then settled(prefix) end
local score, srv_us = redis.pcall('ZSCORE', ready, lane_name), server_us(now_ms, prefix .. 'sweep')
now_ms = math.floor(srv_us / 1000)
local first_byte, flags = string.byte(head, 1, 2)
local priority, plain, none = first_byte % 16, #KEYS == 5, {}
flags = flags or 0
local score_now = type(score) == 'string' and tonumber(score) or math.huge
local ready_score = (10 - priority) * BAND + tonumber(noted[1] or 0)
local ordinary = plain and not raw and not (noted[2] or noted[3] or noted.err)
local class, classes, parked, wake, markers
if not ordinary or score_now > ready_score then
  class = string.sub(ready, #prefix + 7)
  classes, parked, wake = prefix .. 'classes', prefix .. 'parked', prefix .. 'wake:' .. class
  if ordinary then
    -- The lane is not ready: most often it has no jobs, and is not parked.
    local there = redis.call('EXISTS', lane, parked, wake)
    markers = there == 0 and 0 or redis.pcall('LLEN', wake)
    ordinary = score == false and type(markers) == 'number' and there == math.min(markers, 1)
      and redis.pcall('HEXISTS', classes, class) == 1
  end
end
local late = false
if now_ms > not_after_ms then late = true end -- anchor: late-enqueue-is-void
local unique_key, dedup_key, dedup_ms, delay_ms, expires_ms, unique, dedup = '', '', 0, 0, 0, nil, nil
local waits_for, lost, results, new, events, is_parked = none, none, nil, false, nil, 0
if ordinary then
  if late then return { srv_us, 'refused', '', 0, id } end
else
  if not plain then
    unique, dedup, unique_key, dedup_key = KEYS[14], KEYS[15], ARGV[7], ARGV[8]
    dedup_ms, delay_ms, expires_ms = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11] or 0)
  end
  local size, class_known = redis.pcall('ZCARD', lane), 1
  markers = redis.pcall('LLEN', wake)
  -- The class of a ready lane is known, and the lane is not parked.
  if not score then
    class_known, is_parked = redis.pcall('HEXISTS', classes, class), redis.pcall('HEXISTS', parked, lane_name)
  end
  if type(raw) == 'table' or noted.err or type(score) == 'table' or type(size) == 'table'
      or type(markers) == 'table' or type(is_parked) == 'table' or type(class_known) == 'table' then
    check_types({ ready, lane }, { stats, classes, parked }, { wake }, { job })
  end
  -- During a migration of the slot a node refuses a call by itself if one of KEYS is missing, as the key of a
  -- new job is (rule 27).
  if raw or not plain then
    settled(prefix)
    check_types({ prefix .. 'due', prefix .. 'active', prefix .. 'dead' }, { prefix .. 'sweep' }, {},
      { prefix .. 'run:' .. id, seq, unique, dedup })
  end
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
  if late then return { srv_us, 'refused', '', 0, id } end
  local unknown
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
  events = noted[2] and { keep = noted[2] } or nil
  new = class_known == 0 and new_class(prefix, classes, class, ARGV[6] or '')
end

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
local own = none
if not ordinary then
  own = {}
  if new then note_class(prefix, classes, class, ARGV[6] or '', now_ms) end
  -- The index entry is written before the job, because an entry without a job is skipped. But a job without
  -- an entry is lost (rule 1).
  -- anchor: late-children-keep-results
  if results and results[1] then keep_results(prefix, id, results, now_ms) end
  if expires_ms > 0 then redis.call('ZADD', KEYS[22], now_ms + expires_ms, due_member(sequence, id)) end
  if unique_key ~= '' then own[1], own[2] = unique, id end
  if #KEYS > 23 then own[#own + 1], own[#own + 2] = prefix .. 'run:' .. id, run_pack({ heir = '1' }) end
  if #ARGV > 10 and ARGV[12] .. ARGV[13] ~= '' then
    local calls = string.format('%d', sequence)
    redis.call('SADD', KEYS[17], id)
    redis.call('SADD', KEYS[23], '>' .. calls)
    own[#own + 1], own[#own + 2] = prefix .. 'calls:' .. calls,
      struct.pack('>I4', #ARGV[12]) .. ARGV[12] .. ARGV[13]
  end
end
-- anchor: index-entry-before-the-job, 2 lines
local gains
if waits_for[1] then
  block_job(prefix, id, waits_for, lost, now_ms)
elseif due_ms > 0 then -- anchor: delayed-jobs-wait
  local member = due_member(sequence, id)
  redis.call('ZADD', KEYS[11], due_ms, member)
  gains = redis.call('ZRANGE', KEYS[11], 0, 0)[1] == member
else
  -- The same as to_lane, with the values that were read above.
  gains = is_parked == 0
  -- anchor: urgent-new-job-moves-its-lane-ahead
  if is_parked == 0 and ready_score < score_now then redis.call('ZADD', ready, 'LT', ready_score, lane_name) end
  -- As text, because the server prints a large number that is none by long division. Of an ordinary enqueue
  -- this write is the check of its key, too.
  local added = redis.pcall('ZADD', lane, string.format('%d', lane_score(priority, flags, sequence)), id)
  if type(added) == 'table' then
    redis.call('INCRBY', seq, -1)
    check_types({ lane }, {}, {})
    error(added)
  end
end
-- One write for the job and its own keys. A key without its job would never be removed, and a job without its
-- callbacks would never make them.
-- anchor: job-after-its-index-entry, 2 lines
if own[1] then redis.call('MSET', job, envelope, unpack(own)) else redis.call('SET', job, envelope) end
if dedup_key ~= '' then redis.call('SET', dedup, id, 'PXAT', now_ms + dedup_ms) end
-- A lane that was ready has had its marker, and whoever took it claims. Each 16th enqueue looks all the same,
-- because who took it may have died.
if not markers and sequence % 16 == 0 then
  wake = prefix .. 'wake:' .. string.sub(ready, #prefix + 7)
  markers = redis.pcall('LLEN', wake)
end
if gains and markers == 0 then redis.call('RPUSH', wake, '1') end -- anchor: new-work-leaves-a-marker
if events then
  events[1] = { 'created', id, envelope_open(envelope).name,
    waits_for[1] and 'blocked' or due_ms > 0 and 'delayed' or 'waiting' }
  append_events(prefix .. 'events', events)
end
return { srv_us, sequence }
