#!lua flags=no-writes
-- One page of the workers with their last heartbeats.
--
-- HEAD core/call
-- KEYS
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   leader   string  incarnation of the worker that is the leader
-- ARGV
--   offset   number: first rank
--   limit    number: most workers
-- REPLY srv_us, leader, for each worker: incarnation, until_ms, last heartbeat
-- USES core/call: check_types, server_us

check_types({ workers }, { sweep }, {}, { leader })
local found, page = {}, redis.call('ZRANGE', workers, offset, offset + limit - 1, 'WITHSCORES')
for at = 1, #page, 2 do
  found[#found + 1], found[#found + 2] = page[at], page[at + 1]
  local beat = redis.pcall('GET', prefix .. 'worker:' .. page[at]) or ''
  -- One of another type must not hide the others; ttl_ms and lease_ms are 0.
  found[#found + 1] = type(beat) == 'table' and '0 0 0 0 ' .. beat.err or beat
end
return { server_us(now_ms, sweep), redis.call('GET', leader) or '', found }
