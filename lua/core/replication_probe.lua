#!lua flags=allow-oom
-- Write one key and nothing else. A WAIT behind it on the same connection then covers this write and all
-- earlier ones. Without it, a WAIT after a repeat that wrote nothing would prove nothing (rule 8).
--
-- KEYS
--   sweep    hash    state of the sweeps
--   witness  string  time of the last such call (us)
-- ARGV
--   now_ms   '' or the time of a test
-- REPLY srv_us
-- USES core/call: server_us

local srv_us = server_us(now_ms, sweep)
redis.call('SET', witness, string.format('%d', srv_us))
return { srv_us }
