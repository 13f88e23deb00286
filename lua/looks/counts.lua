#!lua flags=no-writes
-- Jobs in each state, and how many have ever finished, been buried, expired and been skipped. With classes,
-- only the waiting jobs of those classes count. Those of some 500 lanes are counted per call: the waiting
-- jobs are the sum of all calls.
--
-- HEAD core/call
-- KEYS
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   done     zset    id by time
--   blocked  zset    jobs that wait for parents, by the time (ms) of their enqueue
--   handing  zset    ended jobs whose children are not all handled yet, by time
--   stats    hash    counters
-- ARGV
--   cursor   '' = begin; else where the call before has ended, whose lanes are counted
--   classes  1 for each class: its name
-- REPLY srv_us, waiting, delayed, active, dead, done, finished, buried, blocked, handing, cursor of the next
--       call ('' = no more lanes), expired, losses of data that processes have found, skipped
-- USES core/call: server_us
--      core/lane: some_lanes

local reply, waiting, wanted = { server_us(now_ms, sweep) }, 0, {}
for at = 4, #ARGV do wanted[ARGV[at]] = true end
local lanes, more = some_lanes(prefix, cursor)
for _, lane in ipairs(lanes) do
  if #ARGV < 4 or wanted[string.match(lane, '^[^/]*')] then
    waiting = waiting + redis.call('ZCARD', prefix .. 'lane:' .. lane)
  end
end
reply[2] = waiting
for _, key in ipairs({ due, active, dead, done }) do reply[#reply + 1] = redis.call('ZCARD', key) end
local totals = redis.call('HMGET', stats, 'finished', 'buried', 'expired', 'data_losses', 'skipped')
reply[#reply + 1] = tonumber(totals[1] or 0) or 0
reply[#reply + 1] = tonumber(totals[2] or 0) or 0
for _, key in ipairs({ blocked, handing }) do reply[#reply + 1] = redis.call('ZCARD', key) end
reply[#reply + 1] = more
for at = 3, 5 do reply[#reply + 1] = tonumber(totals[at] or 0) or 0 end
return reply
