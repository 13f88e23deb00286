#!lua flags=allow-oom
-- Forget the jobs of a batch that has arrived in its new shard.
--
-- HEAD core/call
-- KEYS
--   transit  hash    the batch, as in shard_take
-- ARGV
--   number  number: of the batch
-- REPLY srv_us, how many jobs
-- USES children/children: forget_lacked
--      core/call: check_types, server_us
--      core/envelope: envelope_open
--      core/job: free_unique
--      shards/shard: words_unpack

check_types({}, { sweep, transit }, {})
local srv_us = server_us(now_ms, sweep)
if tonumber(redis.call('HGET', transit, 'number')) ~= number then return { srv_us, 0 } end
local fields, kept = { 'to' }, redis.call('HGETALL', transit)
for at = 1, #kept, 2 do
  local id = string.match(kept[at], '^j:(.*)')
  if id then
    local job = envelope_open(words_unpack(kept[at + 1])[3])
    free_unique(prefix, job, id)
    forget_lacked(prefix, id)
    redis.call('DEL', prefix .. 'job:' .. id, prefix .. 'run:' .. id, prefix .. 'result:' .. id,
      prefix .. 'lost:' .. id)
    fields[#fields + 1] = kept[at]
  end
end
redis.call('HDEL', transit, unpack(fields))
return { srv_us, #fields - 1 }
