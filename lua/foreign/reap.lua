#!lua flags=allow-oom
-- Take expired leases away: the token dies here, and the job goes back to the head of its line or, after too many crashes, to the dead
-- (rule 12). Leases that a clock which stepped back has left far ahead are brought to their longest length, once (rule 10); after
-- a stall nothing is taken until the workers could be heard (rule 11). Jobs that foreign clients held and have left behind come back as
-- well, when two sweeps a second apart have seen them so. Also keeps the bounds that the queue has set for ended jobs, frees slots of
-- limits that nothing holds any more (rule 20), and re-arms the wake marker.
--
-- KEYS
--   sweep   hash    state of the sweeps
--   active  zset    id by lease deadline (ms)
--   stats   hash    counters
--   swept   string  swept:<incarnation>, what its last sweep moved
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of our own keys
--   root      what the foreign keys begin with
--   queue     name of the queue
--   layout    layout of the format, '' = its only one
--   settings  what else the format wants to know
--   counter   counter of the incarnation's sweeps
--   limit     number: most leases to take away
--   most_ms   number: upper bound of the sleep that the reply allows
-- REPLY srv_us, sleep_ms, for each lease: reaped | buried, id, fence, nonce ('-' = it was not ours), crashes

local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local model = wire(root, prefix, queue, layout, settings, now_ms)
check_types({ active, prefix .. 'strays', prefix .. 'cron', prefix .. 'rest' }, { sweep, stats, prefix .. 'limits', prefix .. 'retention' },
  { prefix .. 'wake' }, { swept })
model.check()
local told = swept_before(swept, counter)
if told then return { srv_us, sleep_for(prefix, now_ms, most_ms, model), told } end

local lease_ms, no_reap_before_ms, keep = sweep_clock(sweep, active, now_ms, most_ms)
local latest_ms = now_ms + lease_ms
local ahead = redis.call('ZRANGE', active, '(' .. string.format('%d', latest_ms), '+inf', 'BYSCORE', 'LIMIT', 0, limit)
local expired = redis.call('ZRANGE', active, '-inf', '(' .. string.format('%d', now_ms), 'BYSCORE', 'LIMIT', 0, limit)
if now_ms < no_reap_before_ms then expired = {} end
-- A length that was lost with its hash is no reason to cut leases short: the next claim tells it again.
if lease_ms == 0 then ahead = {} end
local noted = redis.call('HGET', stats, 'events')
local events = noted and { keep = noted }

redis.call('HSET', sweep, unpack(keep))
for _, id in ipairs(ahead) do
  -- `active` last: cut off in between, the next sweep finds the lease again.
  for name in string.gmatch(redis.call('HGET', prefix .. 'run:' .. id, 'limits') or '', '%S+') do
    redis.call('ZADD', prefix .. 'held:' .. name, 'XX', latest_ms, id)
  end
  redis.call('ZADD', active, 'XX', latest_ms, id)
end
local taken = {}
for _, id in ipairs(expired) do
  local kind, fence, nonce, crashes = unpack(reap_foreign(prefix, id, now_ms, model, events))
  redis.call('ZREM', active, id)
  for _, field in ipairs(kind ~= 'ended' and { kind, id, fence, nonce, crashes } or {}) do taken[#taken + 1] = field end
end
-- After a stall the workers of the original have not been heard either.
if now_ms >= no_reap_before_ms then
  for _, id in ipairs(strays_back(prefix, active, now_ms, limit, model, events)) do
    for _, field in ipairs({ 'reaped', id, '0', '-', 0 }) do taken[#taken + 1] = field end
  end
end
local more = keep_ended(prefix, now_ms, model)
mend_held(prefix, active, now_ms)
if #taken > 0 or model.count('waiting') > 0 then wake_push(prefix .. 'wake') end
if #taken > 0 then redis.call('SET', swept, counter .. ' ' .. table.concat(taken, ' '), 'PXAT', now_ms + 20000) end
if events then tell_events(prefix .. 'events', events) end
return { srv_us, (more or #ahead == limit) and 0 or sleep_for(prefix, now_ms, most_ms, model), taken }
