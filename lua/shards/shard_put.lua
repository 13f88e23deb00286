#!lua
-- Put a batch of jobs that shard_take has taken into the shard that they move to. Each batch of a shard has a
-- number, and arrives once.
--
-- HEAD core/call
-- KEYS
--   seq       string  the last sequence
--   classes   hash    class -> its target
--   parked    hash    lane -> the limit that it waits for
--   due       zset    sequence and id by due_ms
--   dead      zset    id by time
--   expiring  zset    sequence and id by the time of the expiry (ms)
--   stats     hash    counters
--   arrived   hash    shard -> number of the last batch from there
-- ARGV
--   source    the shard that they come from
--   number    number: of the batch
--   finished  number: jobs that the shard has counted, which come with its last batch
--   buried    number: the same
--   expired   number: the same
--   skipped   number: the same
--   jobs      2 for each job: id, packed
-- REPLY srv_us, put | repeated, how many jobs were left out because another one has their id
-- USES core/call: check_types, server_us
--      core/envelope: envelope_open
--      core/wake: wake_push
--      shards/shard: enter_shard, words_unpack

check_types({ due, dead, expiring }, { sweep, classes, parked, stats, arrived }, {}, { seq })
local srv_us = server_us(now_ms, sweep)
if tonumber(redis.call('HGET', arrived, source) or 0) >= number then return { srv_us, 'repeated', 0 } end
now_ms = math.floor(srv_us / 1000)
local virtual_time, wakes, left, last = tonumber(redis.call('HGET', stats, 'turn') or 0), {}, 0,
  tonumber(redis.call('GET', seq) or 0)
for at = 9, #ARGV, 2 do
  local job = envelope_open(words_unpack(ARGV[at + 1])[3])
  last = math.max(last, job.sequence or 0)
end
redis.call('SET', seq, string.format('%d', last))
for at = 9, #ARGV, 2 do
  if not enter_shard(prefix, ARGV[at], ARGV[at + 1], now_ms, virtual_time, wakes) then left = left + 1 end
end
for counter, count in pairs({ finished = finished, buried = buried, expired = expired, skipped = skipped }) do
  if count > 0 then redis.call('HINCRBY', stats, counter, count) end
end
redis.call('HSET', arrived, source, string.format('%d', number))
for list in pairs(wakes) do wake_push(list) end
return { srv_us, 'put', left }
