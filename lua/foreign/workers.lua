#!lua flags=no-writes
-- One page of the workers with their last heartbeats: behind those of this engine the ones that the format's
-- registry lists.
--
-- HEAD foreign/format
-- KEYS
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   leader   string  incarnation of the worker that is the leader
-- ARGV
--   offset    number: first rank
--   limit     number: most workers
-- REPLY srv_us, leader, for each worker: incarnation, until_ms, last heartbeat
-- USES <format>: wire_workers
--      core/call: check_types
--      foreign/format: unchecked_now

check_types({ workers }, { sweep }, {}, { leader })
local srv_us, format = unchecked_now(now_ms, sweep, root, prefix, queue, layout, settings)
local found, page = {}, redis.call('ZRANGE', workers, offset, offset + limit - 1, 'WITHSCORES')
for at = 1, #page, 2 do
  found[#found + 1], found[#found + 2] = page[at], page[at + 1]
  local beat = redis.pcall('GET', prefix .. 'worker:' .. page[at]) or ''
  -- As in the script of Lanes: one of another type must not hide the others.
  found[#found + 1] = type(beat) == 'table' and '0 0 0 0 ' .. beat.err or beat
end
local foreign = #page < 2 * limit and wire_workers(format) or {}
local skipped = math.max(0, offset - redis.call('ZCARD', workers))
for at = skipped + 1, math.min(#foreign, skipped + limit - #page / 2) do
  local one = foreign[at]
  found[#found + 1], found[#found + 2] = one.name, string.format('%d', one.heard_ms + one.ttl_ms)
  -- As in a heartbeat of this engine: its counter, how long it counts, lease and sweep interval, and the
  -- description.
  found[#found + 1] = string.format('0 %d 0 0 %s', one.ttl_ms, one.about)
end
return { srv_us, redis.call('GET', leader) or '', found }
