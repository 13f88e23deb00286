#!lua flags=allow-oom
-- Write one key, and nothing else: a WAIT that follows on the same connection then speaks of this and of all that was written before,
-- also when the call ahead of it was a repeat that had nothing left to write (rule 8).
--
-- KEYS
--   sweep    hash    state of the sweeps
--   witness  string  time of the last such call (us)
-- ARGV
--   now_ms   '' or the time of a test
-- REPLY srv_us

local srv_us = server_us(now_ms, sweep)
redis.call('SET', witness, string.format('%d', srv_us))
return { srv_us }
