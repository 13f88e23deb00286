#!lua flags=allow-oom
-- Mark a lease as started, by one call before its handler runs: a job with a crash behind it is charged for another one only when its
-- lease is marked, so that its neighbours in a worker that dies are not buried with it (rule 12).
--
-- KEYS
--   sweep    hash  state of the sweeps
--   active   zset  id by lease deadline (ms)
--   run      hash  run:<id>
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of the engine's own keys
--   root      what the foreign keys begin with
--   queue     name of the queue
--   layout    layout of the keyspace, '' = there is one
--   settings  settings of the model
--   id        the job
--   fence     fence of the token
--   nonce     nonce of the token
-- REPLY srv_us, ok | repeated | stale

check_types({ active }, { sweep, run }, {})
local srv_us = server_us(now_ms, sweep)
local format = wire(root, prefix, queue, layout, settings, math.floor(srv_us / 1000))
format.check()
if foreign_token(prefix, format, id, fence, nonce) ~= 'held' then return { srv_us, 'stale' } end
local token = fence .. ':' .. nonce
if redis.call('HGET', run, 'marked') == token then return { srv_us, 'repeated' } end
redis.call('HSET', run, 'marked', token)
return { srv_us, 'ok' }
