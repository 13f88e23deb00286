-- What a beat changes (beat.lua): who lives, who leads, and until when nobody is taken for dead. Returns the result, whether this worker
-- leads, and whether workers have stopped beating whose leases nobody has looked for.
-- keys: sweep, workers, worker, leader
-- beat: incarnation, counter, ttl_ms, until_ms, lease_ms, about, others
local function note_beat(keys, beat, now_ms)
  local leads = redis.call('GET', keys.leader)
  local kept = redis.call('HMGET', keys.sweep, 'beat_ttl_ms', 'last_beat_ms', 'no_orphans_before_ms')
  local quiet_ms = tonumber(kept[3] or 0)
  local last = tonumber(string.match(redis.call('GET', keys.worker) or '', '^%d+') or -1)
  local function reply(result)
    -- anchor: beats-wait-after-a-stall
    local orphaned = now_ms >= quiet_ms and redis.call('ZCOUNT', keys.workers, '-inf', '(' .. string.format('%d', now_ms)) > 0
    return result, leads == beat.incarnation, orphaned
  end
  -- anchor: late-beat-is-ignored
  if last >= tonumber(beat.counter) then return reply(beat.until_ms > 0 and 'repeated' or 'left') end
  if beat.until_ms == 0 then
    redis.call('ZREM', keys.workers, beat.incarnation)
    if leads == beat.incarnation then redis.call('DEL', keys.leader) end
    -- A late copy of an earlier beat finds that it is late.
    redis.call('SET', keys.worker, beat.counter, 'PXAT', now_ms + beat.ttl_ms + 30000)
    leads = false
    return reply('left')
  end

  local longest_ms = math.max(tonumber(kept[1] or 0), beat.ttl_ms)
  -- Nobody has beaten for half of the time that a beat counts: the server stood still or nobody was there, and whoever lives must be
  -- heard before it is taken for dead (rule 11). The clock stepped back: what it has not reached yet counts as now (rule 10).
  local last_ms = math.min(tonumber(kept[2] or now_ms), now_ms)
  quiet_ms = math.min(quiet_ms, now_ms + longest_ms)
  if now_ms - last_ms > longest_ms / 2 then quiet_ms = now_ms + math.floor(longest_ms / 2) end
  redis.call('HSET', keys.sweep, 'beat_ttl_ms', longest_ms, 'last_beat_ms', now_ms, 'no_orphans_before_ms', quiet_ms)
  -- Who has stopped since the clock stepped back is not taken for alive until it is there again (rule 10).
  local latest_ms = string.format('%d', now_ms + longest_ms)
  -- anchor: stopped-members-are-removed
  for _, other in ipairs(redis.call('ZRANGE', keys.workers, '(' .. latest_ms, '+inf', 'BYSCORE', 'LIMIT', 0, 100)) do
    redis.call('ZADD', keys.workers, 'XX', latest_ms, other)
  end
  local until_ms = math.min(beat.until_ms, now_ms + beat.ttl_ms)
  redis.call('ZADD', keys.workers, until_ms, beat.incarnation)
  for _, other in ipairs(beat.others) do redis.call('ZADD', keys.workers, until_ms, other) end
  if not leads or leads == beat.incarnation then
    redis.call('SET', keys.leader, beat.incarnation, 'PXAT', until_ms)
    leads = beat.incarnation
  end
  -- As long as a lease of it may live, a sweep needs to know how long those are.
  local words = { beat.counter, beat.ttl_ms, beat.lease_ms, beat.about }
  redis.call('SET', keys.worker, table.concat(words, ' '), 'PXAT', until_ms + tonumber(beat.lease_ms) + 60000)
  return reply('ok')
end
