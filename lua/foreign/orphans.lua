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
--   limit     number: most leases to look at
--   most_ms   number: upper bound of the sleep that the reply allows
-- REPLY srv_us, 0 = call again | most_ms, for each lease: reaped | buried, id, fence, nonce, crashes

local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local model = wire(root, prefix, queue, layout, settings, now_ms)
check_types({ workers, active }, { sweep, stats }, { prefix .. 'wake' }, { swept })
model.check()
local told = swept_before(swept, counter)
if told then return { srv_us, most_ms, told } end
local noted = redis.call('HGET', stats, 'events')
local events = noted and { keep = noted }

local taken, more = take_orphans(prefix, { sweep = sweep, workers = workers, active = active }, now_ms, limit, function(id)
  return reap_foreign(prefix, id, now_ms, model, events)
end)
if #taken > 0 then wake_push(prefix .. 'wake') end
if #taken > 0 then redis.call('SET', swept, counter .. ' ' .. table.concat(taken, ' '), 'PXAT', now_ms + 20000) end
if events then tell_events(prefix .. 'events', events) end
return { srv_us, more and 0 or most_ms, taken }
