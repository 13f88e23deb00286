#!lua
-- Take jobs out of a shard whose jobs move to others: the first half of a move, whose batches are numbered.
-- What was taken is kept in `transit` until shard_drop, so the call may be repeated, and whoever finds a
-- batch there goes on with it.
--
-- HEAD core/call
-- KEYS
--   due       zset    sequence and id by due_ms
--   dead      zset    id by time
--   expiring  zset    sequence and id by the time of the expiry (ms)
--   active    zset    id by lease deadline (ms)
--   blocked   zset    jobs that wait for parents
--   feeding   set     jobs that others wait for
--   stats     hash    counters
--   transit   hash    number of the last batch; while it is on its way `to`, the shard that it goes to, and
--             `j:<id>`, each job packed
-- ARGV
--   number  number: of this batch; 0 = only look
--   to      the shard that it goes to
--   jobs    1 for each job: id
-- REPLY srv_us, taken | busy (another batch is on its way, and told) | stale, number of the last batch, its
--       shard ('' = it has arrived), for each of its jobs: id, packed
-- USES core/call: check_types, server_us
--      core/lane: leave_empty
--      shards/shard: job_to_move, leave_shard

check_types({ due, dead, expiring, active, blocked }, { sweep, stats, transit }, {})
redis.call('SCARD', feeding)
local srv_us = server_us(now_ms, sweep)
local known = redis.call('HMGET', transit, 'number', 'to')
local last, reply = tonumber(known[1] or 0), {}
if not known[2] and number ~= last + 1 then return { srv_us, 'stale', last, '', reply } end
if not known[2] then
  local words = { 'number', string.format('%d', number), 'to', to }
  for at = 5, #ARGV do
    local packed = job_to_move(prefix, ARGV[at])
    if packed then words[#words + 1], words[#words + 2] = 'j:' .. ARGV[at], packed end
  end
  -- None of them may move now. Without jobs, a batch carries the counters of the shard.
  if #words == 4 and ARGV[5] then return { srv_us, 'stale', last, '', reply } end
  -- Before any job leaves: of a call that is cut off, what follows here is done by the next one.
  redis.call('HSET', transit, unpack(words))
  last = number
end
local lanes, kept = {}, redis.call('HGETALL', transit)
for at = 1, #kept, 2 do
  local id = string.match(kept[at], '^j:(.*)')
  if id and redis.call('ZSCORE', active, id) then
    redis.call('HDEL', transit, kept[at])
  elseif id then
    leave_shard(prefix, id, kept[at + 1], lanes)
    reply[#reply + 1], reply[#reply + 2] = id, kept[at + 1]
  end
end
for lane in pairs(lanes) do leave_empty(prefix, lane) end
return { srv_us, last == number and 'taken' or 'busy', last, known[2] or to, reply }
