#!lua flags=no-writes
-- Jobs in each state, and how many this engine's workers have ever finished, buried and skipped. With
-- classes, only the waiting jobs of those classes count, and with a worker only those that it may run. The
-- first 10,000 waiting jobs are read; all behind them are counted.
--
-- HEAD foreign/format
-- KEYS
--   stats  hash    counters
-- ARGV
--   worker    '' or the packed attributes of a worker, as in claim.lua
--   lowest    number: '' or the lowest priority of the jobs to count
--   highest   number: '' or the highest priority of the jobs to count
--   items     1 for each class: its name
-- REPLY srv_us, waiting, delayed, active, dead, done, finished, buried, blocked, handing, '' (no call counts
--       a part), expired, losses of data, skipped
-- USES <format>: wire_count, wire_list, wire_read
--      core/call: check_types
--      foreign/format: format_now, not_for, unpack_worker
--      foreign/ids: nameable

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
check_types({}, { stats }, {})

local reply, waiting, wanted = { srv_us }, wire_count(format, 'waiting'), {}
for at = 10, #ARGV do wanted[ARGV[at]] = true end
if #ARGV > 9 and waiting > 0 then
  local attributes = worker ~= '' and unpack_worker(worker, lowest and highest and { lowest, highest } or nil)
  local words, ours = wire_list(format, 'waiting', 0, 10000, false, attributes), 0
  for at = 1, #words, 2 do
    local job = wire_read(format, words[at])
    if job and job.kind == 'J' and wanted[job.name] and nameable(words[at])
        and not (attributes and not_for(job, attributes, format)) then
      ours = ours + 1
    end
  end
  waiting = ours + (#words == 20000 and math.max(0, waiting - 10000) or 0)
end
reply[2] = waiting
for _, state in ipairs({ 'delayed', 'active', 'dead', 'done' }) do
  reply[#reply + 1] = wire_count(format, state)
end
local totals = redis.call('HMGET', stats, 'finished', 'buried', 'skipped')
reply[#reply + 1] = tonumber(totals[1] or 0) or 0
reply[#reply + 1] = tonumber(totals[2] or 0) or 0
for _, rest in ipairs({ 0, 0, '', 0, 0, tonumber(totals[3] or 0) or 0 }) do reply[#reply + 1] = rest end
return reply
