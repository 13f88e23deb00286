#!lua flags=no-writes
-- Read how far a job has come: what a worker of this engine has told last, or a foreign one after it.
--
-- HEAD foreign/format
-- KEYS
--   run    string  run:<id>
-- ARGV
--   id        the job
-- REPLY srv_us, percent, message, data and at_ms as JSON; '' where nothing is noted
-- USES <format>: wire_progress
--      core/call: check_types
--      foreign/format: unchecked_now

local srv_us, format = unchecked_now(now_ms, sweep, root, prefix, queue, layout, settings)
check_types({}, { run }, {})
local own = redis.call('HGET', run, 'progress') or ''
local percent, message, at_ms = wire_progress(format, id, string.match(own, '"percent":([%d.eE+-]+)'))
if not percent or percent ~= percent or math.abs(percent) == math.huge
    or at_ms and at_ms <= tonumber(string.match(own, '^{"at_ms":(%d+)') or -1) then
  return { srv_us, own }
end
return { srv_us, string.format('{"at_ms":%d,"percent":%.17g,"message":%s,"data":null}', at_ms or 0, percent,
  message or 'null') }
