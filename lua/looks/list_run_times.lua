#!lua flags=no-writes
-- How long the handlers of each name took, one page of the names.
--
-- HEAD core/call
-- KEYS
--   took   zset  names that have handler times, by the time (ms) of their first report
-- ARGV
--   offset  number: first rank
--   limit   number: most names
-- REPLY srv_us, for each name: name, time of its first report (ms), its times: field and number
-- USES core/call: check_types, server_us

check_types({ took }, { sweep }, {})
local found, page = {}, redis.call('ZRANGE', took, offset, offset + limit - 1, 'WITHSCORES')
for at = 1, #page, 2 do
  found[#found + 1] = { page[at], page[at + 1], redis.call('HGETALL', prefix .. 'took:' .. page[at]) }
end
return { server_us(now_ms, sweep), found }
