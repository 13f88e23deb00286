#!lua flags=allow-oom
-- Mark a lease as started, in a call of its own before the handler runs. A job that has crashed before is
-- charged another crash only if its lease is marked. So a job that kills its worker does not bury the
-- worker's other jobs (rule 12).
--
-- HEAD foreign/format
-- KEYS
--   active   zset    id by lease deadline (ms)
--   run      string  run:<id>
-- ARGV
--   id        the job
--   fence     fence of the token
--   nonce     nonce of the token
-- REPLY srv_us, ok | repeated | stale
-- USES core/call: check_types
--      foreign/claim: foreign_token
--      foreign/format: format_now

check_types({ active }, { sweep, run }, {})
local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
if foreign_token(prefix, format, id, fence, nonce) ~= 'held' then return { srv_us, 'stale' } end
local token = fence .. ':' .. nonce
if redis.call('HGET', run, 'marked') == token then return { srv_us, 'repeated' } end
redis.call('HSET', run, 'marked', token)
return { srv_us, 'ok' }
