#!lua flags=no-writes
-- One page of the jobs in a state at one instant: their ids, or the number of jobs per name.
--
-- HEAD foreign/format
-- KEYS
--   active  zset    id by lease deadline (ms)
-- ARGV
--   state     waiting | blocked | delayed | active | stuck | dead | finished
--   offset    number: first rank
--   limit     number: most entries
--   newest    1 = from the end
--   names     1 = names instead of ids
-- REPLY srv_us, how many entries, their ids, or of each name: name, count (name '' = corrupt), '' (no call
--       counts a part)
-- USES <format>: wire_read
--      core/call: check_types
--      foreign/format: format_now
--      foreign/looks: jobs_at

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ active }, {}, {})

local found, words, counts = jobs_at(active, state, offset, limit, newest == '1', now_ms, format), {}, {}
for _, entry in ipairs(found) do
  if names == '1' then
    local job = wire_read(format, entry.id)
    local name = job and job.kind == 'J' and job.name or ''
    counts[name] = (counts[name] or 0) + 1
  else
    words[#words + 1] = entry.id
  end
end
for name, count in pairs(counts) do
  words[#words + 1] = name
  words[#words + 1] = count
end
return { srv_us, #found, words, '' }
