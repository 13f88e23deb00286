#!lua
-- Enqueue many jobs into their lanes, the delayed ones into `due`, atomically and in the order of the items
-- (rule 3). A job's envelope holds its enqueue nonce, if it has one. Repeating the call changes nothing.
--
-- HEAD core/call
-- KEYS
--   seq      string  the last sequence
--   classes  hash    class -> its target
--   parked   hash    lane -> the limit that it waits for
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   stats    hash    counters
--   lanes    3 for each lane: ready:<class>, lane:<lane>, wake:<class>
--   uniques  1 for each unique or dedup key of the items: unique:<key> or dedup:<key>; and expiring for an
--            item that expires
--   items    1 for each item: job:<id>
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   lane_count    number: how many lanes
--   place_count   number: how many items have a place of their own
--   lanes         3 for each lane: class, lane name, what the class requires of a worker ('' = nothing)
--   places        2 for each place: number of the item, and with spaces between delay_ms (as in enqueue),
--                 number of the lane, unique key, dedup key (/ = none), dedup_ms, and expires_ms if it
--                 expires; items without a place go into the first lane at once
--   items         1 for each item: envelope without the fields that the server sets
-- REPLY srv_us, a letter for each item (c created, r repeated, d duplicate, x refused, m moved), then for
--       each duplicate: state, fence, id of the existing job; then, if any job was created, the first and the
--       last sequence
-- USES core/call: check_types, server_us
--      core/envelope: envelope_open, envelope_start
--      core/job: enqueue_known, reject_enqueue, unique_holder
--      core/lane: due_member, lane_score
--      core/wake: append_events, new_class, note_class, wake_push

-- First all reads. In most calls no id is known, so a page of 500 ids costs one EXISTS.
local lanes, zsets, wakes = {}, { due, active, dead }, {}
for at = 1, lane_count do
  local ready, lane, wake = KEYS[6 + 3 * at], KEYS[7 + 3 * at], KEYS[8 + 3 * at]
  lanes[at] = { class = ARGV[3 + 3 * at], name = ARGV[4 + 3 * at], target = ARGV[5 + 3 * at], ready = ready,
    zset = lane, wake = wake, waiting = {}, size = 0, best = 0 }
  zsets[#zsets + 1], zsets[#zsets + 2], wakes[at] = ready, lane, wake
end
check_types(zsets, { sweep, classes, parked, stats }, wakes, { seq })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local sequence = tonumber(redis.call('GET', seq) or 0)
local noted = redis.call('HMGET', stats, 'turn', 'events', 'moved')
local virtual_time, events = tonumber(noted[1] or 0), noted[2] and { keep = noted[2] }
local places_at = 4 + 3 * lane_count
local places = {}
for at = 1, place_count do places[tonumber(ARGV[places_at + 2 * at])] = ARGV[places_at + 2 * at + 1] end
-- Item number `at` is KEYS[keys_at + at] and ARGV[items_at + at].
local items_at = places_at + 1 + 2 * place_count
local count = #ARGV - items_at
local keys_at, id_at = #KEYS - count, #prefix + 5
local letters, known_states, rejected, taken, keyed = {}, {}, {}, {}, {}
local delayed, jobs, words, unique_jobs, windows, tombstones, expiries, fresh, first_due = {}, {}, 0, {}, {},
  {}, {}, 0, nil
-- The job that makes an item a duplicate: another job, or an earlier item of this call. The holder of the
-- unique key counts first.
-- Returns id, state and fence, or nil.
local function held_by(id, unique, dedup, delay_ms)
  for _, own in ipairs({ { 'unique:' .. unique, unique, '' }, { 'dedup:' .. dedup, '', dedup } }) do
    local earlier = taken[own[1]]
    if earlier then return earlier.id, earlier.state, 0 end
    local holder, state, fence = unique_holder(prefix, own[2], own[3], id)
    if holder then return holder, state, fence end
  end
  local item = { id = id, state = delay_ms ~= 0 and 'delayed' or 'waiting' }
  if unique ~= '' then taken['unique:' .. unique] = item end
  if dedup ~= '' then taken['dedup:' .. dedup] = item end
end
local late = now_ms > not_after_ms
for page = 1, count, PIECE / 2 do
  local last, job_keys = math.min(page + PIECE / 2 - 1, count), {}
  for at = page, last do job_keys[at - page + 1] = KEYS[keys_at + at] end
  local some_known = redis.call('EXISTS', unpack(job_keys)) > 0 -- anchor: bulk-looks-for-every-known-id
  for at = page, last do
    local key, sealed, place = KEYS[keys_at + at], ARGV[items_at + at], places[at]
    local id = string.sub(key, id_at)
    local delay_ms, lane, unique, dedup, dedup_ms, expires_ms = 0, lanes[1], '', '', 0, 0
    if place then
      delay_ms, lane, unique, dedup, dedup_ms, expires_ms =
        string.match(place, '^(-?%d+) (%d+) (%S+) (%S+) (%d+) ?(%d*)$')
      delay_ms, lane, dedup_ms, expires_ms = tonumber(delay_ms), lanes[tonumber(lane)], tonumber(dedup_ms),
        tonumber(expires_ms) or 0
      unique, dedup = unique ~= '/' and unique or '', dedup ~= '/' and dedup or ''
    end
    local first_byte, flags = string.byte(sealed, 1, 2)
    if first_byte < 176 then flags = 0 end
    local own_nonce = math.floor(flags / 64) % 2 == 1 and string.sub(sealed, 3, 10) or ''
    local result, state, fence, first
    if some_known then
      check_types({}, {}, {}, { key })
      local known = envelope_open(redis.call('GET', key))
      -- anchor: each-bulk-job-is-known-by-its-own-nonce
      result, state, fence, first = enqueue_known(prefix, known, own_nonce, id)
      if result == 'repeated' and dedup ~= '' and known.kind == 'J'
          and known.enqueued_ms + dedup_ms > now_ms then
        windows[#windows + 1] = { dedup = dedup, id = id, until_ms = known.enqueued_ms + dedup_ms }
      end
      if result == 'duplicate' and known.kind == 'T' then tombstones[#tombstones + 1] = key end
    end
    if not result and late then result = 'x' end
    if not result and (unique ~= '' or dedup ~= '') then
      first, state, fence = held_by(id, unique, dedup, delay_ms)
      if first then
        result = 'duplicate'
        rejected[#rejected + 1] = { key = key, holder = first, nonce = own_nonce }
      else
        keyed[#keyed + 1] = { id = id, unique = unique, dedup = dedup, dedup_ms = dedup_ms }
      end
    end
    if not result and noted[3] then result = 'moved' end
    if not result then
      fresh, sequence = fresh + 1, sequence + 1
      lane.gains = true
      if expires_ms > 0 then
        expiries[#expiries + 1], expiries[#expiries + 2] = now_ms + expires_ms, due_member(sequence, id)
      end
      local due_ms = 0
      if delay_ms ~= 0 then
        local member = due_member(sequence, id)
        -- anchor: bulk-jobs-are-due-in-full-time
        due_ms = delay_ms > 0 and now_ms + delay_ms or -delay_ms
        delayed[#delayed + 1], delayed[#delayed + 2] = due_ms, member
        -- The earliest job of this call; among equal times the first one has the lower sequence.
        if not first_due or due_ms < first_due.due_ms then
          first_due = { due_ms = due_ms, member = member, wake = lane.wake }
        end
      else
        local priority, waiting, size = first_byte % 16, lane.waiting, lane.size
        waiting[size + 1], waiting[size + 2] = lane_score(priority, flags, sequence), id
        lane.size = size + 2
        if priority > lane.best then lane.best = priority end
      end
      local head_length = flags > 0 and 2 or 1
      local envelope = envelope_start(string.sub(sealed, 1, head_length), sequence, now_ms, due_ms,
        not_after_ms)
        .. string.sub(sealed, head_length + 1)
      if unique ~= '' then
        for _, word in ipairs({ prefix .. 'unique:' .. unique, id, key, envelope }) do
          unique_jobs[#unique_jobs + 1] = word
        end
      else
        jobs[words + 1], jobs[words + 2] = key, envelope
        words = words + 2
      end
      if events then
        events[fresh] = { 'created', id, envelope_open(envelope).name,
          delay_ms ~= 0 and 'delayed' or 'waiting' }
      end
    elseif result == 'duplicate' then
      for _, word in ipairs({ state, fence, first }) do known_states[#known_states + 1] = word end
    end
    letters[at] = result and string.sub(result, 1, 1) or 'c'
  end
end
-- 2^48: beyond it a FIFO score would leave its band (rule 16).
if sequence > U48_MAX then return redis.error_reply('IRONCLAIM sequence exhausted at 2^48') end
local reply = { srv_us, table.concat(letters), known_states, fresh > 0 and sequence - fresh + 1 or nil,
  fresh > 0 and sequence or nil }
if expiries[1] then check_types({ prefix .. 'expiring' }, {}, {}) end
local new = {}
for _, lane in ipairs(lanes) do
  if lane.gains and new_class(prefix, classes, lane.class, lane.target) then new[lane.class] = lane.target end
end

for _, turned_away in ipairs(rejected) do
  reject_enqueue(turned_away.key, turned_away.nonce, turned_away.holder, not_after_ms + LATE_COPY_MS, 3)
end
-- Dedup windows of jobs that an earlier copy of the call made before it was cut off.
for _, window in ipairs(windows) do
  redis.call('SET', prefix .. 'dedup:' .. window.dedup, window.id, 'NX', 'PXAT', window.until_ms)
end
-- Keep the tombstones long enough, because a late copy must get the same answer.
for _, key in ipairs(tombstones) do redis.call('PEXPIREAT', key, not_after_ms + LATE_COPY_MS, 'GT') end
if fresh == 0 then return reply end
redis.call('INCRBY', seq, fresh)
for class, target in pairs(new) do note_class(prefix, classes, class, target, now_ms) end
-- Index entries are written before the jobs, because an entry without a job is skipped, but a job without an
-- entry is lost (rule 1).
-- anchor: bulk-keeps-every-expiry
for at = 1, #expiries, PIECE do redis.call('ZADD', prefix .. 'expiring', unpack(expiries, at, math.min(at + PIECE - 1, #expiries))) end
-- anchor: bulk-keeps-every-delayed-job
for at = 1, #delayed, PIECE do redis.call('ZADD', due, unpack(delayed, at, math.min(at + PIECE - 1, #delayed))) end
for _, lane in ipairs(lanes) do
  if lane.best > 0 and redis.call('HEXISTS', parked, lane.name) == 0 then
    -- anchor: urgent-bulk-job-moves-its-lane-ahead
    redis.call('ZADD', lane.ready, 'LT', (10 - lane.best) * BAND + virtual_time, lane.name)
    lane.claimable = true
  end
  -- anchor: bulk-keeps-every-waiting-job
  for at = 1, #lane.waiting, PIECE do redis.call('ZADD', lane.zset, unpack(lane.waiting, at, math.min(at + PIECE - 1, #lane.waiting))) end
end
-- anchor: bulk-keeps-every-job
for at = 1, #jobs, PIECE do redis.call('MSET', unpack(jobs, at, math.min(at + PIECE - 1, #jobs))) end
-- Four words per job, so that a job and its unique key go into one piece. A key without its job would never
-- be removed.
-- anchor: bulk-keeps-every-unique-job
for at = 1, #unique_jobs, PIECE do redis.call('MSET', unpack(unique_jobs, at, math.min(at + PIECE - 1, #unique_jobs))) end
for _, item in ipairs(keyed) do
  if item.dedup ~= '' then
    redis.call('SET', prefix .. 'dedup:' .. item.dedup, item.id, 'PXAT', now_ms + item.dedup_ms)
  end
end
for _, lane in ipairs(lanes) do
  if lane.claimable then wake_push(lane.wake) end
end
if first_due and redis.call('ZRANGE', due, 0, 0)[1] == first_due.member then wake_push(first_due.wake) end
if events then append_events(prefix .. 'events', events) end
return reply
