#!lua
-- Declare an empty queue as made for tests: only then do scripts accept `now_ms` from their caller. On any
-- other queue they use the server's time, so that no caller can shift it.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   seq      string  the last sequence
-- ARGV
--   (none)
-- REPLY srv_us, made | refused
-- USES core/call: server_us

local srv_us = server_us('', sweep)
if redis.call('EXISTS', seq) == 1 then return { srv_us, 'refused' } end
redis.call('HSET', sweep, 'test_clock', '1')
return { srv_us, 'made' }
