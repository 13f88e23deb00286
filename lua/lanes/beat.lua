#!lua flags=allow-oom
-- Tell that a worker lives, what it is and what it has in hand, or with until_ms 0 that it has ended. Whoever beats while nobody leads
-- leads from then on: that only saves work, for it decides whose sweeps come at once.
--
-- KEYS
--   sweep    hash    state of the sweeps
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   worker   string  worker:<incarnation>, its last beat
--   leader   string  incarnation of the worker that leads
-- ARGV
--   now_ms       '' or the time of a test
--   prefix       prefix of the queue's keys
--   incarnation  16 hex digits
--   counter      counter of the incarnation's beats
--   ttl_ms       how long a beat counts
--   until_ms     server time until which this one counts; 0 = the worker has ended
--   lease_ms     length of its leases
--   about        JSON for people
--   others       1 for each other incarnation whose leases it still has
-- REPLY srv_us, ok | repeated | left, 1 = it leads, 1 = workers have stopped beating whose leases nobody has looked for
-- @include server_us
-- @include settled
-- @include check_types
local sweep = KEYS[1]
local workers = KEYS[2]
local worker = KEYS[3]
local leader = KEYS[4]
local now_ms = ARGV[1]
local prefix = ARGV[2]
local incarnation = ARGV[3]
local counter = ARGV[4]
local ttl_ms = tonumber(ARGV[5])
local until_ms = tonumber(ARGV[6])
local lease_ms = ARGV[7]
local about = ARGV[8]

settled(prefix)
check_types({ workers }, { sweep }, {}, { worker, leader })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local leads = redis.call('GET', leader)
local kept = redis.call('HMGET', sweep, 'beat_ttl_ms', 'last_beat_ms', 'no_orphans_before_ms')
local quiet_ms = tonumber(kept[3] or 0)
local last = tonumber(string.match(redis.call('GET', worker) or '', '^%d+') or -1)
local function reply(result)
  local orphaned = now_ms >= quiet_ms and redis.call('ZCOUNT', workers, '-inf', '(' .. string.format('%d', now_ms)) > 0
  return { srv_us, result, leads == incarnation and 1 or 0, orphaned and 1 or 0 }
end
if last >= tonumber(counter) then return reply(until_ms > 0 and 'repeated' or 'left') end
if until_ms == 0 then
  redis.call('ZREM', workers, incarnation)
  if leads == incarnation then redis.call('DEL', leader) end
  -- A late copy of an earlier beat finds that it is late.
  redis.call('SET', worker, counter, 'PXAT', now_ms + ttl_ms + 30000)
  leads = false
  return reply('left')
end

local longest_ms = math.max(tonumber(kept[1] or 0), ttl_ms)
-- Nobody has beaten for half of the time that a beat counts: the server stood still or nobody was there, and whoever lives must be
-- heard before it is taken for dead (rule 11). The clock stepped back: what it has not reached yet counts as now (rule 10).
local last_ms = math.min(tonumber(kept[2] or now_ms), now_ms)
quiet_ms = math.min(quiet_ms, now_ms + longest_ms)
if now_ms - last_ms > longest_ms / 2 then quiet_ms = now_ms + math.floor(longest_ms / 2) end
redis.call('HSET', sweep, 'beat_ttl_ms', longest_ms, 'last_beat_ms', now_ms, 'no_orphans_before_ms', quiet_ms)
until_ms = math.min(until_ms, now_ms + ttl_ms)
redis.call('ZADD', workers, until_ms, incarnation)
for at = 9, #ARGV do redis.call('ZADD', workers, until_ms, ARGV[at]) end
if not leads or leads == incarnation then
  redis.call('SET', leader, incarnation, 'PXAT', until_ms)
  leads = incarnation
end
-- As long as a lease of it may live, a sweep needs to know how long those are.
redis.call('SET', worker, table.concat({ counter, ttl_ms, lease_ms, about }, ' '), 'PXAT', until_ms + tonumber(lease_ms) + 60000)
return reply('ok')
