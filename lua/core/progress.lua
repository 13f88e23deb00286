#!lua flags=allow-oom
-- Record the progress of a running job. A copy that is older than the last record under the same token
-- changes nothing (rule 7).
--
-- KEYS
--   sweep    hash    state of the sweeps
--   job      string  job:<id>, the envelope or its tombstone
--   run      string  run:<id>
--   stats    hash    counters, and how many events are kept
--   events   stream  events of the queue
-- ARGV
--   now_ms   '' or the time of a test
--   fence    fence of the token
--   nonce    nonce of the token
--   count    number: counter of the worker's progress calls
--   body     percent, message and data, as the fields of a JSON object after at_ms
-- REPLY srv_us, ok | repeated | stale
-- USES core/call: check_types, server_us
--      core/envelope: checked_head
--      core/lease: token_state
--      core/run: run_read, run_write
--      core/wake: append_events

check_types({}, { sweep, stats }, {}, { run })
local srv_us = server_us(now_ms, sweep)
local known_job = checked_head(job)
if token_state(run, known_job, fence, nonce) ~= 'held' then return { srv_us, 'stale' } end
local token, known = string.match(run_read(run, 'progressed')[1] or '', '^(%S+) (%d+)$')
if token == fence .. ':' .. nonce and tonumber(known) >= count then return { srv_us, 'repeated' } end
local keep = redis.call('HGET', stats, 'events')
run_write(run, 'progressed', string.format('%s:%s %d', fence, nonce, count),
  'progress', string.format('{"at_ms":%d,', math.floor(srv_us / 1000)) .. body)
if keep then
  append_events(events, { keep = keep, { 'progress', string.match(job, '}:job:(.*)$'), known_job.name,
    string.match(body, '"percent":([^,}]+)') } })
end
return { srv_us, 'ok' }
