#!lua flags=allow-oom
-- Record the progress of a running job, also in the format where it shows progress. A copy that is older than
-- the last record under the same token changes nothing (rule 7).
--
-- HEAD foreign/format
-- KEYS
--   run     string  run:<id>
--   active  zset    id by lease deadline (ms)
--   stats   hash    counters, and how many events are kept
--   events  stream  events of the queue
-- ARGV
--   id        the job
--   fence     fence of the token
--   nonce     nonce of the token
--   count     number: counter of the worker's progress calls
--   body      percent, message and data, as the fields of a JSON object after at_ms
-- REPLY srv_us, ok | repeated | stale
-- USES <format>: wire_mine, wire_noted, wire_read
--      core/call: check_types
--      core/wake: append_events
--      foreign/format: format_now

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ active }, { sweep, run, stats }, {})
local known = redis.call('HMGET', run, 'fence', 'nonce', 'progressed')
local held = known[1] == fence and known[2] == nonce and redis.call('ZSCORE', active, id)
  and wire_mine(format, id, fence .. ':' .. nonce)
if not held then return { srv_us, 'stale' } end
local token, noted = string.match(known[3] or '', '^(%S+) (%d+)$')
if token == fence .. ':' .. nonce and tonumber(noted) >= count then return { srv_us, 'repeated' } end
local keep, job = redis.call('HGET', stats, 'events'), wire_read(format, id)
redis.call('HSET', run, 'progressed', string.format('%s:%s %d', fence, nonce, count), 'progress',
  string.format('{"at_ms":%d,', now_ms) .. body)
if job and job.kind == 'J' then wire_noted(format, id, job, body) end
if keep then
  local detail = string.match(body, '"percent":([^,}]+)')
  append_events(events, { keep = keep, { 'progress', id, job and job.name or '', detail } })
end
return { srv_us, 'ok' }
