#!lua flags=no-writes
-- One page of every state at one instant: ids with their times, for snapshots and displays.
--
-- HEAD foreign/format
-- KEYS
--   active  zset    id by lease deadline (ms)
-- ARGV
--   offset    number: first rank
--   limit     number: most entries for each state
-- REPLY srv_us, then for each of waiting, delayed, active, dead, done, blocked: member, score, ...; members
--       of delayed begin with ten zeros
-- USES core/call: check_types
--      foreign/format: format_now
--      foreign/looks: jobs_at

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ active }, {}, {})

local reply = { srv_us }
for at, state in ipairs({ 'waiting', 'delayed', 'active', 'dead', 'finished', 'blocked' }) do
  local words = {}
  for _, entry in ipairs(jobs_at(active, state, offset, limit, false, now_ms, format)) do
    -- Lanes has the sequence there, which the code that reads the reply drops.
    words[#words + 1] = (state == 'delayed' and '0000000000' or '') .. entry.id
    words[#words + 1] = string.format('%d', entry.score)
  end
  reply[at + 1] = words
end
return reply
