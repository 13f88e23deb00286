#!lua
-- Add a worker's report of handler times: how long the handlers of each name took since its last report. A
-- report is identified by the worker's incarnation and its counter, and counts once. The counter is written
-- first: a call that is cut off may lose a part of its numbers, but its copy never adds them twice. With too
-- many names the rest goes under `*`.
--
-- HEAD core/call
-- KEYS
--   took    zset    names that have handler times, by the time (ms) of their first report
--   others  hash    took:*, the times of all names for which there was no room
--   told    string  told:<incarnation>, counter of its last report
--   times   1 for each item: took:<name>
-- ARGV
--   counter       counter of the incarnation's reports
--   not_after_ms  number: server time after which this call is void
--   names_max     number: most names of a queue
--   items         5 for each item: name, ok | failed, total_us, most_us, bucket and runs of each bucket with
--                 spaces between
-- REPLY srv_us, ok | repeated | refused
-- USES core/call: check_types, server_us

local hashes = { sweep, others }
for at = 5, #KEYS do hashes[#hashes + 1] = KEYS[at] end
check_types({ took }, hashes, {}, { told })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
-- anchor: repeated-report-counts-once
if tonumber(redis.call('GET', told) or 0) >= tonumber(counter) then return { srv_us, 'repeated' } end
if now_ms > not_after_ms then return { srv_us, 'refused' } end
local items, known, most_us = {}, {}, {}
local room = names_max - redis.call('ZCARD', took)
for at = 6, #ARGV, 5 do
  local name, item = ARGV[at], { name = ARGV[at], key = KEYS[5 + (at - 6) / 5], outcome = ARGV[at + 1],
    total_us = ARGV[at + 2] }
  if not known[name] and not redis.call('ZSCORE', took, name) then
    if room > 0 then room = room - 1 else item.name, item.key = '*', others end
  end
  known[item.name] = true
  item.most = item.outcome .. ':most_us'
  local most = item.key .. item.most
  most_us[most] = math.max(most_us[most] or tonumber(redis.call('HGET', item.key, item.most) or 0),
    tonumber(ARGV[at + 3]))
  item.buckets = ARGV[at + 4]
  items[#items + 1] = item
end
redis.call('SET', told, counter, 'PXAT', not_after_ms + LATE_COPY_MS)
for _, item in ipairs(items) do
  redis.call('ZADD', took, 'NX', now_ms, item.name)
  redis.call('HINCRBY', item.key, item.outcome .. ':total_us', item.total_us)
  redis.call('HSET', item.key, item.most, string.format('%d', most_us[item.key .. item.most]))
  for bucket, runs in string.gmatch(item.buckets, '(%d+) (%d+)') do
    redis.call('HINCRBY', item.key, item.outcome .. ':' .. bucket, runs)
  end
end
return { srv_us, 'ok' }
