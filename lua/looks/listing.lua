#!lua flags=no-writes
-- One page of every state at one instant: ids with their scores, for snapshots and displays.
--
-- HEAD core/call
-- KEYS
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   done     zset    id by time
--   blocked  zset    jobs that wait for parents, by the time (ms) of their enqueue
-- ARGV
--   offset   number: first rank
--   limit    number: most entries for each state
-- REPLY srv_us, then for each of waiting, delayed, active, dead, done, blocked: member, score, ...
-- USES core/call: server_us
--      core/lane: some_lanes

local reply, waiting, skip = { server_us(now_ms, sweep) }, {}, offset
local cursor = ''
repeat
  local lanes
  lanes, cursor = some_lanes(prefix, cursor)
  for _, lane in ipairs(lanes) do
    local key = prefix .. 'lane:' .. lane
    local size = redis.call('ZCARD', key)
    if skip < size then
      for _, word in ipairs(redis.call('ZRANGE', key, skip, skip + limit - #waiting / 2 - 1, 'WITHSCORES')) do
        waiting[#waiting + 1] = word
      end
    end
    skip = math.max(0, skip - size)
    if #waiting >= 2 * limit then break end
  end
until cursor == '' or #waiting >= 2 * limit
reply[2] = waiting
for _, key in ipairs({ due, active, dead, done, blocked }) do
  reply[#reply + 1] = redis.call('ZRANGE', key, offset, offset + limit - 1, 'WITHSCORES')
end
return reply
