-- Leader election among the workers of a queue, and the heartbeats by which it is held. The leader sweeps;
-- each follower watches for its sweeps (rule 13). The hash `sweep` keeps led_ms, the time of the leader's
-- last sweep, and turn_ms, the last watch slot that a follower got.
-- USES core/call: fields_of
--      core/presence: looks_are_late, note_connection

-- Leader election: after this time (ms) without a sweep the leader counts as dead. A sweep may be late by a
-- quarter of the caller's own interval, and by at least 100 ms.
local function silent_after(sweep_ms)
  return sweep_ms + math.max(100, math.floor(sweep_ms / 4))
end

-- Leader election: whether the leader counts as dead, by the sweep interval of a follower. It is gone,
-- stalled, or sweeps more rarely than the follower would. `led_ms` is the time of its last sweep. If the
-- clock stepped back, that age is unknown, so the leader counts as dead.
local function is_silent(led_ms, sweep_ms, now_ms)
  local ago_ms = now_ms - tonumber(led_ms or 0)
  return ago_ms < 0 or ago_ms >= silent_after(sweep_ms)
end

-- Leader election: when a follower next checks the leader (rule 13). Each follower gets one watch slot per
-- sweep interval, placed right after the leader would count as dead. `watch_ms` is the last watch slot that
-- was given out. The next one follows it, but lies at most eight seconds ahead. A heartbeat before its watch
-- slot keeps that, so busy workers do not push it back forever.
local function next_watch_ms(led_ms, watch_ms, sweep_ms, now_ms)
  local every_ms = math.max(100, sweep_ms)
  local next_ms = math.min(math.max(tonumber(watch_ms or 0), now_ms) + every_ms, now_ms + 8000)
  local first_ms = tonumber(led_ms) + silent_after(sweep_ms)
  next_ms = first_ms + every_ms * math.floor((next_ms - first_ms) / every_ms + 0.5)
  return next_ms > now_ms and next_ms or next_ms + every_ms
end

-- Leader election, at each heartbeat: the leader stays unless it counts as dead; then the caller of this
-- heartbeat succeeds it. Returns the leader's incarnation, false for a new one; the time (ms) at which the
-- caller checks the leader, now for one that leads itself; and the field that keeps this time, or nil.
-- slot_ms: the caller's own watch slot if that has not come yet, else nil
local function elect_leader(beat, state, leads, slot_ms, now_ms)
  if leads == beat.incarnation then return leads, now_ms end
  -- anchor: silent-leader-is-succeeded
  if is_silent(state.led_ms, beat.sweep_ms, now_ms) then leads = false end
  -- A new leader counts as having swept, because it sweeps next. So no other worker takes the lead meanwhile.
  if not leads then return false, now_ms, 'led_ms' end
  if slot_ms then return leads, slot_ms end
  return leads, next_watch_ms(state.led_ms, state.turn_ms, beat.sweep_ms, now_ms), 'turn_ms'
end

-- What a heartbeat reads before it writes: fields of `sweep` by name, the worker's last heartbeat, and the
-- leader. Error replies where a key has another type.
-- keys: sweep, worker, leader
local function beat_state(keys)
  local names = { 'beat_ttl_ms', 'last_beat_ms', 'no_orphans_before_ms', 'led_ms', 'turn_ms', 'looked_ms' }
  return fields_of(keys.sweep, names), redis.pcall('GET', keys.worker), redis.pcall('GET', keys.leader)
end

-- Record a heartbeat (beat.lua): the list of live workers, the leader, and the time before which no worker
-- counts as dead. Returns 5 values: the result; whether this worker is the leader; whether leases of workers
-- without heartbeats remain to be swept; for a follower the time (ms) until it checks the leader, else 0; and
-- whether a follower must check control connections. `state`, `worker` and `leads` are what beat_state has
-- read.
-- keys: sweep, workers, worker, leader, connections (nil where the format has none), active
-- beat: incarnation, counter, ttl_ms, until_ms, lease_ms, sweep_ms, about, others, connection
local function note_beat(keys, beat, now_ms, state, worker, leads)
  local quiet_ms, watch_ms = tonumber(state.no_orphans_before_ms or 0), 0
  local last, mine_ms = tonumber(string.match(worker or '', '^%d+') or -1),
    tonumber(string.match(worker or '', '^%d+ %d+ %d+ (%d+)') or 0)
  -- Its watch slot has not come yet. One that lies further ahead than they are given out was set before the
  -- clock stepped back.
  local waits = leads and leads ~= beat.incarnation and mine_ms > now_ms
    and mine_ms < now_ms + 8000 + math.max(100, beat.sweep_ms)
  if waits then watch_ms = mine_ms - now_ms end
  local function reply(result)
    -- anchor: beats-wait-after-a-stall
    local orphaned = now_ms >= quiet_ms and redis.call('ZCOUNT', keys.workers, '-inf', '(' .. string.format('%d', now_ms)) > 0
    local late = result == 'ok' and keys.connections and leads ~= beat.incarnation
      and looks_are_late(beat, state.looked_ms, keys.active, now_ms)
    return result, leads == beat.incarnation, orphaned, watch_ms, late
  end
  -- anchor: late-beat-is-ignored
  if last >= tonumber(beat.counter) then return reply(beat.until_ms > 0 and 'repeated' or 'left') end
  -- The heartbeat had expired when it arrived. It would list a worker that may be long gone, for ever if no
  -- worker is left to sweep. Nor does it prove that the server was not stalled.
  -- anchor: beat-that-ran-out-lists-nobody
  if beat.until_ms > 0 and beat.until_ms <= now_ms then return reply('repeated') end
  -- Before the counter: if the script is cut off in between, the next copy writes the connection again.
  if keys.connections then note_connection(keys.connections, beat) end
  if beat.until_ms == 0 then
    redis.call('ZREM', keys.workers, beat.incarnation)
    if leads == beat.incarnation then redis.call('DEL', keys.leader) end
    -- A late copy of an earlier heartbeat finds this counter and is ignored.
    redis.call('SET', keys.worker, beat.counter, 'PXAT', now_ms + beat.ttl_ms + 30000)
    leads = false
    return reply('left')
  end

  local longest_ms = math.max(tonumber(state.beat_ttl_ms or 0), beat.ttl_ms)
  -- No heartbeat for half of the time for which one counts means a stall, or that there was no worker. Live
  -- workers must be able to send theirs before they count as dead (rule 11). If the clock stepped back, times
  -- that lie ahead of it count as now (rule 10).
  local last_ms = math.min(tonumber(state.last_beat_ms or now_ms), now_ms)
  quiet_ms = math.min(quiet_ms, now_ms + longest_ms)
  if now_ms - last_ms > longest_ms / 2 then quiet_ms = now_ms + math.floor(longest_ms / 2) end
  local keep = { 'beat_ttl_ms', longest_ms, 'last_beat_ms', now_ms, 'no_orphans_before_ms', quiet_ms }
  local at_ms, field
  leads, at_ms, field = elect_leader(beat, state, leads, waits and mine_ms or nil, now_ms)
  if field then keep[#keep + 1], keep[#keep + 2] = field, at_ms end
  watch_ms = at_ms - now_ms
  -- A time that was set before the clock stepped back is lowered, because a worker that has stopped since
  -- must not count as alive until the clock has caught up (rule 10).
  local latest_ms = string.format('%d', now_ms + longest_ms)
  -- anchor: stopped-members-are-removed
  for _, other in ipairs(redis.call('ZRANGE', keys.workers, '(' .. latest_ms, '+inf', 'BYSCORE', 'LIMIT', 0, 100)) do
    redis.call('ZADD', keys.workers, 'XX', latest_ms, other)
  end
  redis.call('HSET', keys.sweep, unpack(keep))
  local until_ms = math.min(beat.until_ms, now_ms + beat.ttl_ms)
  redis.call('ZADD', keys.workers, until_ms, beat.incarnation)
  for _, other in ipairs(beat.others) do redis.call('ZADD', keys.workers, until_ms, other) end
  if not leads or leads == beat.incarnation then
    redis.call('SET', keys.leader, beat.incarnation, 'PXAT', until_ms)
    leads = beat.incarnation
  end
  -- The record outlives the worker's leases, because a sweep needs to know how long those are.
  local words = { beat.counter, beat.ttl_ms, beat.lease_ms,
    watch_ms > 0 and string.format('%d', now_ms + watch_ms) or '0', beat.about }
  redis.call('SET', keys.worker, table.concat(words, ' '), 'PXAT', until_ms + tonumber(beat.lease_ms) + 60000)
  return reply('ok')
end
