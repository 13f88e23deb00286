#!lua
-- Say whether a shard takes new jobs, and let its sequences go on after those of the shards whose jobs it
-- gets.
--
-- HEAD core/call
-- KEYS
--   seq    string  the last sequence
--   stats  hash    counters
-- ARGV
--   moved     what enqueues are told: 1 (only children of jobs that are here) or 2 (none), then the number of
--             shards; '' = as it is
--   sequence  number: the next jobs have a later one
-- REPLY srv_us, the last sequence
-- USES core/call: check_types, server_us

check_types({}, { sweep, stats }, {}, { seq })
local srv_us, last = server_us(now_ms, sweep), tonumber(redis.call('GET', seq) or 0)
if moved ~= '' then redis.call('HSET', stats, 'moved', moved) end
if sequence > last then redis.call('SET', seq, string.format('%d', sequence)) end
return { srv_us, math.max(last, sequence) }
