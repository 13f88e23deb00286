#!lua flags=allow-oom
-- Take away the leases of workers that have stopped beating, before those run out: a pass over `active`, one page a call (see
-- lua/lanes/orphans.lua, of which this is the counterpart).
--
-- KEYS
--   sweep    hash    state of the sweeps
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   active   zset    id by lease deadline (ms)
--   stats    hash    counters
--   swept    string  swept:<incarnation>, what its last sweep moved
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of our own keys
--   root      what the foreign keys begin with
--   queue     name of the queue
--   layout    layout of the format, '' = its only one
--   settings  what else the format wants to know
--   counter   counter of the incarnation's sweeps
--   limit     most leases to look at
--   most_ms   upper bound of the sleep that the reply allows
-- REPLY srv_us, 0 = call again | most_ms, for each lease: reaped | buried, id, fence, nonce, crashes
-- @include server_us
-- @include check_types
-- @include json_members
-- @include rfc3339
-- @include fields
-- @include wire
-- @include swept_before
-- @include error_note
-- @include free_held
-- @include tell_ended
-- @include foreign_end
-- @include reap_foreign
-- @include wake_push
-- @include tell_events
local sweep = KEYS[1]
local workers = KEYS[2]
local active = KEYS[3]
local stats = KEYS[4]
local swept = KEYS[5]
local now_ms = ARGV[1]
local prefix = ARGV[2]
local root = ARGV[3]
local queue = ARGV[4]
local layout = ARGV[5]
local settings = ARGV[6]
local counter = ARGV[7]
local limit = tonumber(ARGV[8])
local most_ms = tonumber(ARGV[9])

local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local model = wire(root, prefix, queue, layout, settings, now_ms,
  { json_members = json_members, rfc3339 = rfc3339, fields = fields, check_types = check_types })
check_types({ workers, active }, { sweep, stats }, { prefix .. 'wake' }, { swept })
model.check()
local told = swept_before(swept, counter)
if told then return { srv_us, most_ms, told } end
local kept = redis.call('HMGET', sweep, 'no_orphans_before_ms', 'orphans_until_ms', 'orphans_from', 'orphans_after', 'beat_ttl_ms',
  'last_beat_ms')
-- A call that was on its way when the server stood still arrives before the first beat that could tell of it (beat.lua).
local stalled = now_ms - tonumber(kept[6] or now_ms) > tonumber(kept[5] or 0) / 2
-- Who has stopped since the pass began is for the next one.
local until_ms = string.format('%d', math.min(tonumber(kept[2] or now_ms), now_ms))
local gone, shown, some = {}, {}, false
if not stalled and now_ms >= tonumber(kept[1] or 0) then
  for _, incarnation in ipairs(redis.call('ZRANGE', workers, '-inf', '(' .. until_ms, 'BYSCORE', 'LIMIT', 0, 100)) do
    local ttl_ms, lease_ms = string.match(redis.call('GET', prefix .. 'worker:' .. incarnation) or '', '^%d+ (%d+) (%d+)')
    -- A beat that is forgotten is older than any lease of its worker.
    lease_ms, ttl_ms = tonumber(lease_ms or 0), tonumber(ttl_ms or 0)
    gone[incarnation], some = { more_ms = lease_ms - ttl_ms, lease_ms = lease_ms }, true
  end
end
if not some then return { srv_us, most_ms, {} } end
-- On from the last lease that was looked at, or, where that has ended or was renewed, from all that had its score.
local rank, page = kept[4] and redis.call('ZSCORE', active, kept[4]) == kept[3] and redis.call('ZRANK', active, kept[4]), nil
if rank then
  page = redis.call('ZRANGE', active, rank + 1, rank + limit, 'WITHSCORES')
else
  page = redis.call('ZRANGE', active, kept[3] or '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
end
local noted = redis.call('HGET', stats, 'events')
local events = noted and { keep = noted }
local helpers = { error_note = error_note, foreign_end = foreign_end, free_held = free_held, tell_ended = tell_ended, events = events }

local taken = {}
for at = 1, #page, 2 do
  local id, nonce = page[at], redis.call('HGET', prefix .. 'run:' .. page[at], 'nonce') or ''
  local incarnation = string.match(nonce, '^([^:]+):')
  local worker, deadline_ms = gone[incarnation], tonumber(page[at + 1])
  -- Its last claim or renewal was a lease's length before its end.
  if worker and deadline_ms >= now_ms + worker.more_ms then
    shown[incarnation] = math.max(shown[incarnation] or 0, deadline_ms - worker.more_ms)
  elseif worker then
    local kind, fence, token, crashes = unpack(reap_foreign(prefix, id, now_ms, model, helpers))
    redis.call('ZREM', active, id)
    for _, field in ipairs(kind ~= 'ended' and { kind, id, fence, token, crashes } or {}) do taken[#taken + 1] = field end
  end
end
for incarnation, alive_ms in pairs(shown) do
  redis.call('ZADD', workers, 'XX', 'GT', alive_ms, incarnation)
  redis.call('PEXPIREAT', prefix .. 'worker:' .. incarnation, alive_ms + gone[incarnation].lease_ms + 60000, 'GT')
end
if #taken > 0 then wake_push(prefix .. 'wake') end
local full = #page == 2 * limit
if full then
  redis.call('HSET', sweep, 'orphans_until_ms', until_ms, 'orphans_from', page[#page], 'orphans_after', page[#page - 1])
else
  redis.call('HDEL', sweep, 'orphans_until_ms', 'orphans_from', 'orphans_after')
  for incarnation in pairs(gone) do
    if tonumber(redis.call('ZSCORE', workers, incarnation)) < tonumber(until_ms) then redis.call('ZREM', workers, incarnation) end
  end
end
if #taken > 0 then redis.call('SET', swept, counter .. ' ' .. table.concat(taken, ' '), 'PXAT', now_ms + 20000) end
if events then tell_events(prefix .. 'events', events) end
return { srv_us, full and 0 or most_ms, taken }
