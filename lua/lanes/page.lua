#!lua flags=no-writes
-- One page of the jobs in a state at one instant: their ids, or the number of jobs per name; names of waiting jobs are all counted at once.
--
-- KEYS
--   sweep    hash    state of the sweeps
-- ARGV
--   now_ms   '' or the time of a test
--   prefix   prefix of the queue's keys
--   state    waiting | blocked | delayed | active | stuck | dead | finished
--   offset   number: first rank
--   limit    number: most entries
--   newest   1 = from the end
--   names    1 = names instead of ids
-- REPLY srv_us, how many entries, their ids, or of each name: name, count (name '' = corrupt)

settled(prefix)
local srv_us = server_us(now_ms, sweep)
local words, counts, found = {}, {}, {}
if names == '1' and state == 'waiting' then
  -- All jobs of a lane have the name of its first one.
  for _, lane in ipairs(offset == 0 and lanes_of(prefix) or {}) do
    local key = prefix .. 'lane:' .. lane
    local head = redis.call('ZRANGE', key, 0, 0)[1]
    local job = head and envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. head, 0, 700)) or {}
    local name = job.name or string.match(lane, '^[^/]*')
    if head then counts[name] = (counts[name] or 0) + redis.call('ZCARD', key) end
  end
else
  found = jobs_in(prefix, state, offset, limit, newest == '1', math.floor(srv_us / 1000))
end
for _, entry in ipairs(found) do
  if names == '1' then
    local job = envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. entry.id, 0, 700))
    if job and job.kind ~= 'T' then counts[job.name or ''] = (counts[job.name or ''] or 0) + 1 end
  else
    words[#words + 1] = entry.id
  end
end
for name, count in pairs(counts) do
  words[#words + 1] = name
  words[#words + 1] = count
end
return { srv_us, #found, words }
