#!lua flags=no-writes
-- One page of the jobs in a state at one instant: their ids, or the number of jobs per name. For waiting jobs
-- a call covers some 500 lanes.
--
-- HEAD core/call
-- KEYS
-- ARGV
--   state    waiting | blocked | delayed | active | stuck | dead | finished
--   offset   number: first rank
--   limit    number: most entries
--   newest   1 = from the end
--   names    1 = names instead of ids
--   cursor   of names of waiting jobs: '' = begin; else where the call before has ended
-- REPLY srv_us, how many entries, their ids, or of each name: name, count (name '' = corrupt), cursor of the
--       next call ('' = no more)
-- USES core/call: server_us
--      core/envelope: job_head
--      core/job: jobs_in
--      core/lane: some_lanes

local srv_us = server_us(now_ms, sweep)
local words, counts, found, more = {}, {}, {}, ''
if names == '1' and state == 'waiting' then
  -- A class begins with the name of its jobs.
  local lanes
  lanes, more = some_lanes(prefix, cursor)
  for _, lane in ipairs(lanes) do
    local name, size = string.match(lane, '^[^/@]*'), redis.call('ZCARD', prefix .. 'lane:' .. lane)
    if size > 0 then counts[name] = (counts[name] or 0) + size end
  end
else
  found = jobs_in(prefix, state, offset, limit, newest == '1', math.floor(srv_us / 1000))
end
for _, entry in ipairs(found) do
  if names == '1' then
    local job = job_head(prefix .. 'job:' .. entry.id)
    if job and job.kind ~= 'T' then counts[job.name or ''] = (counts[job.name or ''] or 0) + 1 end
  else
    words[#words + 1] = entry.id
  end
end
for name, count in pairs(counts) do
  words[#words + 1] = name
  words[#words + 1] = count
end
return { srv_us, #found, words, more }
