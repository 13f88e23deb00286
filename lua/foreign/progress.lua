#!lua flags=allow-oom
-- Note how far a running job has come, and where the format shows progress, there too. A copy that is older than what was noted under the
-- same token changes nothing (rule 7).
--
-- KEYS
--   sweep   hash    state of the sweeps
--   run     hash    run:<id>
--   active  zset    id by lease deadline (ms)
--   stats   hash    counters, and how many events are kept
--   events  stream  what has happened
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of our own keys
--   root      what the foreign keys begin with
--   queue     name of the queue
--   layout    layout of the format, '' = its only one
--   settings  what else the format wants to know
--   id        the job
--   fence     fence of the token
--   nonce     nonce of the token
--   count     number: counter of what the worker has noted
--   body      percent, message and data, as the fields of a JSON object after at_ms
-- REPLY srv_us, ok | repeated | stale

local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local model = wire(root, prefix, queue, layout, settings, now_ms)
check_types({ active }, { sweep, run, stats }, {})
model.check()
local known = redis.call('HMGET', run, 'fence', 'nonce', 'progressed')
local held = known[1] == fence and known[2] == nonce and redis.call('ZSCORE', active, id) and model.mine(id, fence .. ':' .. nonce)
if not held then return { srv_us, 'stale' } end
local token, noted = string.match(known[3] or '', '^(%S+) (%d+)$')
if token == fence .. ':' .. nonce and tonumber(noted) >= count then return { srv_us, 'repeated' } end
local keep, job = redis.call('HGET', stats, 'events'), model.read(id)
redis.call('HSET', run, 'progressed', string.format('%s:%s %d', fence, nonce, count), 'progress', string.format('{"at_ms":%d,', now_ms) .. body)
if model.noted and job and job.kind == 'J' then model.noted(id, job, body) end
if keep then
  local detail = string.match(body, '"percent":([^,}]+)')
  tell_events(events, { keep = keep, { 'progress', id, job and job.name or '', detail } })
end
return { srv_us, 'ok' }
