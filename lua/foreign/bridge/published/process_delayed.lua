#!lua flags=allow-oom
-- BridgeMQ's promotion: jobs whose time has come go to the end of the waiting ones. Slots and reply are those of the original.
--
-- KEYS
--   delayed      zset  id by the time (ms) at which it is due
--   waiting      list  ids
-- ARGV
--   currentTime  ms
--   batchSize    most jobs to move, 100 by default
-- REPLY how many were moved
local delayed = KEYS[1]
local waiting = KEYS[2]
local now_ms, most = ARGV[1], tonumber(ARGV[2]) or 100

local found = redis.call('ZRANGEBYSCORE', delayed, 0, now_ms, 'LIMIT', 0, most)
-- Check the type of the other key before the first write: a job that has left one key and cannot enter the other would be lost.
redis.call('LLEN', waiting)
for _, id in ipairs(found) do
  redis.call('RPUSH', waiting, id)
  redis.call('ZREM', delayed, id)
end
return #found
