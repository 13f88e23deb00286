#!lua flags=allow-oom
-- Record which server the queue is on, and detect lost writes: the server has less than a process has seen or
-- was acknowledged. Causes are a replica that was promoted without the last writes, a restored snapshot, or
-- an empty server. A process makes this call before its first write on a server that it did not know. So an
-- era begins at the sequence of the last write that survived.
--
-- KEYS
--   sweep   hash    state of the sweeps
--   seq     string  the last sequence
--   era     list    the servers that the queue was on, the latest first: replication id, `seq` when it came
--           there, server time (ms)
--   stats   hash    counters
--   claims  1 for each incarnation of the process: claim:<incarnation>
-- ARGV
--   now_ms        '' or the time of a test
--   replid        replication id of this server
--   before        replication id of the server that the process knew before, '' = none
--   known         the entry of `era` that it has seen there, '' = none
--   acknowledged  number: the highest sequence that it was acknowledged, in this era or an earlier one
--   claims        2 for each incarnation: counter of its last answered claim, 1 = the record of that cannot
--                 have expired yet
-- REPLY srv_us, the entry of this server, the least sequence at which an era began that the process did not
--       know, and what is missing: '' = nothing | sequence | claim | marker (the entry of `era` that it has
--       seen)
-- USES core/call: check_types, server_us

check_types({}, { sweep, stats }, { era }, { seq })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local last, entries = tonumber(redis.call('GET', seq) or 0), redis.call('LRANGE', era, 0, -1)
local here, fresh = entries[1], nil
if not here or string.match(here, '^%S+') ~= replid then
  here, fresh = replid .. string.format(' %d %d', last, now_ms), true
  table.insert(entries, 1, here)
end
local found, missing, seen = last, '', known == ''
local known_ms = tonumber(string.match(known, '%d+$') or 0)
for at, entry in ipairs(entries) do
  local id, began, at_ms = string.match(entry, '^(%S+) (%d+) (%d+)')
  if entry == known then seen = true end
  -- What lies behind the era that the process knew is no concern of its. A restored snapshot does not have
  -- that one, so the times tell.
  if entry == known or known == '' and id == before or at > 1 and tonumber(at_ms) < known_ms then break end
  found = math.min(found, tonumber(began))
end
-- The list keeps 16 entries, so of one that is as long the process may know an older one.
if not seen and #entries < 16 then missing = 'marker' end
for at = 5, #KEYS do
  local counter, is_there = string.match(redis.call('GET', KEYS[at]) or '', '^%d+'), ARGV[2 * at - 3]
  if counter and tonumber(counter) < tonumber(ARGV[2 * at - 4]) or not counter and is_there == '1' then
    missing = 'claim'
  end
end
if acknowledged > found then missing = 'sequence' end
if fresh then
  redis.call('LPUSH', era, here)
  redis.call('LTRIM', era, 0, 15)
end
-- Several processes find the same loss.
if missing ~= '' and redis.call('HGET', stats, 'lost_era') ~= here then
  redis.call('HSET', stats, 'lost_era', here)
  redis.call('HINCRBY', stats, 'data_losses', 1)
end
return { srv_us, here, found, missing }
