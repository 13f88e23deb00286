-- Presence: the control connections of workers, by which a killed one is noticed before its leases run out (rule 39).

-- Record the control connection that a heartbeat names, for each incarnation of its worker; none where it has none, or has ended.
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

-- Whether the caller of this sweep looks at the connections: once a second somebody does, whoever sweeps first. Only where a lease
-- could be taken: an idle queue costs nothing. `kept`: of sweep_state.
local function look_is_due(kept, run_id, latest_ms, no_reap_before_ms, now_ms)
  if run_id == '' or latest_ms == 0 or now_ms < no_reap_before_ms then return false end
  -- Sweeps are a second apart, and a little less where one was on its way for longer. If the clock stepped back, it is due.
  local ago_ms = now_ms - tonumber(kept[12] or 0)
  return ago_ms < 0 or ago_ms >= 900 -- anchor: look-belongs-to-one
end

-- Whether followers look at the connections, because nobody has for almost two seconds: the leader cannot, since it is behind a proxy
-- or of a version that does not. A beat that says so makes its worker sweep, and the beats of followers are a second apart (rule 13).
local function looks_are_late(beat, looked_ms, active, now_ms)
  local ago_ms = now_ms - tonumber(looked_ms or 0)
  -- anchor: followers-look-where-the-leader-does-not
  return beat.connection ~= '' and (ago_ms < 0 or ago_ms >= 1900) and redis.call('EXISTS', active) == 1
end

-- The connections to look at, of workers that are connected to the server with this run id: incarnation and client id of each, a
-- page of some hundreds from the cursor `from` on. Returns them, the cursor of the next page, and incarnations that are in the hash
-- and belong to no worker any more.
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
