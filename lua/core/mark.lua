#!lua flags=allow-oom
-- Mark a lease as started, in a call of its own before the handler runs. A job that has crashed before is
-- charged another crash only if its lease is marked. So a job that kills its worker does not bury the
-- worker's other jobs (rule 12).
--
-- KEYS
--   sweep    hash    state of the sweeps
--   job      string  job:<id>, the envelope or its tombstone
--   run      string  run:<id>
-- ARGV
--   now_ms   '' or the time of a test
--   fence    fence of the token
--   nonce    nonce of the token
-- REPLY srv_us, ok | repeated | stale
-- USES core/call: check_types, server_us
--      core/envelope: checked_head
--      core/lease: token_state
--      core/run: run_read, run_write

check_types({}, { sweep }, {}, { job, run })
local srv_us = server_us(now_ms, sweep)
local token = fence .. ':' .. nonce
if token_state(run, checked_head(job), fence, nonce) ~= 'held' then
  return { srv_us, 'stale' }
end
if run_read(run, 'marked')[1] == token then return { srv_us, 'repeated' } end
run_write(run, 'marked', token)
return { srv_us, 'ok' }
