#!lua flags=allow-oom
-- Take away expired leases: the token is revoked, and the job goes back to the front of the waiting jobs or, after too many
-- crashes, to the dead (rule 12). Leases that end too far ahead because the clock stepped back are cut to the longest lease
-- length, once (rule 10). After a stall nothing is taken until workers could renew (rule 11). Jobs that foreign clients took and
-- no longer hold come back as well, when two sweeps a second apart have seen them so. Also keeps the bounds that the queue has
-- set for ended jobs, frees slots of limits that no lease holds any more (rule 20), and pushes a missing wake marker.
--
-- KEYS
--   sweep   hash    state of the sweeps
--   active  zset    id by lease deadline (ms)
--   stats   hash    counters
--   swept   string  swept:<incarnation>, counter and reply of its last sweep
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of the engine's own keys
--   root      prefix of the foreign keys
--   queue     name of the queue
--   layout    layout of the keyspace, '' = the format has only one
--   settings  settings of the model
--   counter   counter of the incarnation's sweeps
--   limit     number: most leases to take away
--   most_ms   number: upper bound of the sleep that the reply allows
-- REPLY srv_us, sleep_ms, for each lease: reaped | buried, id, fence, nonce ('-' = it was a foreign client's), crashes

local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local model = wire(root, prefix, queue, layout, settings, now_ms)
check_types({ active, prefix .. 'strays', prefix .. 'cron', prefix .. 'rest' }, { sweep, stats, prefix .. 'limits', prefix .. 'retention' },
  { prefix .. 'wake' }, { swept })
model.check()
local repeated = swept_before(swept, counter)
if repeated then return { srv_us, sleep_for(prefix, now_ms, most_ms, model), repeated } end

local lease_ms, no_reap_before_ms, keep = sweep_clock(sweep, active, now_ms, most_ms)
local latest_ms = now_ms + lease_ms
local ahead = redis.call('ZRANGE', active, '(' .. string.format('%d', latest_ms), '+inf', 'BYSCORE', 'LIMIT', 0, limit)
local expired = redis.call('ZRANGE', active, '-inf', '(' .. string.format('%d', now_ms), 'BYSCORE', 'LIMIT', 0, limit)
if now_ms < no_reap_before_ms then expired = {} end
-- If the hash with the lease length was lost, no lease is cut: the next claim writes the length again.
if lease_ms == 0 then ahead = {} end
local noted = redis.call('HGET', stats, 'events')
local events = noted and { keep = noted }

redis.call('HSET', sweep, unpack(keep))
for _, id in ipairs(ahead) do
  -- `active` last: if the call is cut off in between, the next sweep finds the lease again.
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
-- After a stall the foreign workers could not renew yet either.
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
