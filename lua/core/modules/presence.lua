-- Presence: the control connections of workers, by which a killed one is noticed before its leases run out
-- (rule 39).

-- Record the control connection of a heartbeat for each incarnation of its worker; none if it has none, or
-- has ended.
-- beat: incarnation, until_ms, others, connection
local function note_connection(connections, beat)
  for _, incarnation in ipairs({ beat.incarnation, unpack(beat.others) }) do
    if beat.connection ~= '' and beat.until_ms > 0 then
      redis.call('HSET', connections, incarnation, beat.connection)
    else
      redis.call('HDEL', connections, incarnation)
    end
  end
end

-- Whether the caller of this sweep must check the connections: once a second one sweep does. Only if a lease
-- could be taken, so an idle queue costs nothing. `state`: of sweep_state.
local function look_is_due(state, run_id, latest_ms, no_reap_before_ms, now_ms)
  if run_id == '' or latest_ms == 0 or now_ms < no_reap_before_ms then return false end
  -- Sweeps are a second apart, or a little less if one was longer on its way. If the clock stepped back, the
  -- check is due.
  local ago_ms = now_ms - tonumber(state.looked_ms or 0)
  return ago_ms < 0 or ago_ms >= 900 -- anchor: look-belongs-to-one
end

-- Whether followers must check the connections, because no worker has for almost two seconds. The leader may
-- be unable to: its user may not, or it is of an older version. A heartbeat with that reply makes its worker
-- sweep; heartbeats of followers are a second apart (rule 13).
local function looks_are_late(beat, looked_ms, active, now_ms)
  local ago_ms = now_ms - tonumber(looked_ms or 0)
  -- anchor: followers-look-where-the-leader-does-not
  return beat.connection ~= '' and (ago_ms < 0 or ago_ms >= 1900) and redis.call('EXISTS', active) == 1
end

-- The connections to check, of workers that are connected to the server with this run id: incarnation and
-- client id of each, in pages of some hundreds from the cursor `from` on. Returns them, the cursor of the
-- next page, and incarnations in the hash that belong to no worker any more.
local function watched_connections(connections, workers, run_id, from)
  local next_from, flat = unpack(redis.call('HSCAN', connections, from, 'COUNT', 250))
  local incarnations, watched, stale = {}, {}, {}
  for at = 1, #flat, 2 do incarnations[#incarnations + 1] = flat[at] end
  local listed = incarnations[1] and redis.call('ZMSCORE', workers, unpack(incarnations)) or {}
  for at, incarnation in ipairs(incarnations) do
    local client_id, run = string.match(flat[2 * at], '^(%d+) (%S+)$')
    if not listed[at] then
      stale[#stale + 1] = incarnation
    elseif run == run_id then
      watched[#watched + 1], watched[#watched + 2] = incarnation, client_id
    end
  end
  return watched, next_from, stale
end
