#!lua flags=no-writes
-- One page of the schedules by next tick, those that do not tick last; or the schedule with this name. A next tick that a foreign
-- client has moved is the one on the wire, and a schedule that it has removed is left out.
--
-- KEYS
--   sweep     hash    state of the sweeps
--   cron      zset    schedules by next tick (ms), +inf for one that does not tick
--   schedule  hash    cron:<schedule>, its definition and its state
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of the engine's own keys
--   root      prefix of the foreign keys
--   queue     name of the queue
--   layout    layout of the keyspace, '' = the format has only one
--   settings  settings of the model
--   name      name of the schedule, '' = a page of all
--   offset    number: first rank
--   limit     number: most schedules of the page
-- REPLY srv_us, 1 where more follow, then for each as in the script of Lanes

local srv_us = server_us(now_ms, sweep)
local model = wire(root, prefix, queue, layout, settings, math.floor(srv_us / 1000))
local page = {}
local function add(known, key)
  local next_ms = model.next_tick_ms and model.next_tick_ms(known)
  if next_ms ~= false then add_schedule(page, known, key, next_ms) end
end
if name ~= '' then
  add(name, schedule)
  return { srv_us, 0, page }
end
for _, member in ipairs(redis.call('ZRANGE', cron, offset, offset + limit - 1)) do add(member, prefix .. 'cron:' .. member) end
return { srv_us, redis.call('ZCARD', cron) > offset + limit and 1 or 0, page }
