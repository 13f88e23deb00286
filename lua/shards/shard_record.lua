#!lua
-- Replace the record of a sharded queue if it still is what the caller has read: compare and set, so that a
-- repeat changes nothing. The first record closes the queue's own name, which is shard 0, to enqueues without
-- shards.
--
-- HEAD core/call
-- KEYS
--   seq     string  the last sequence
--   stats   hash    counters
--   shards  string  the record, as JSON
-- ARGV
--   known   the record that the caller has read; '' = none
--   record  the new one
--   moved   what enqueues into shard 0 are told from now on, as in shard_gate; '' = as it is
--   fresh   1 = only if no job was ever put into the queue
-- REPLY srv_us, done | changed | used, the record now
-- USES core/call: check_types, server_us

check_types({}, { sweep, stats }, {}, { seq, shards })
local srv_us, now = server_us(now_ms, sweep), redis.call('GET', shards) or ''
if now ~= known then return { srv_us, now == record and 'done' or 'changed', now } end
if fresh == '1' and redis.call('EXISTS', seq) == 1 then return { srv_us, 'used', now } end
if moved ~= '' then redis.call('HSET', stats, 'moved', moved) end
redis.call('SET', shards, record)
return { srv_us, 'done', record }
