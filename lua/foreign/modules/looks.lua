-- States of jobs on a foreign format, strays, pauses, and the next sweep.
-- USES <format>: wire_back, wire_ended, wire_list, wire_locked, wire_next_due_ms, wire_of_another,
--        wire_place, wire_read, wire_resume, wire_set_aside, wire_strays
--      foreign/claim: own_number, own_words
--      foreign/ids: nameable

-- The place of a job for display; nil for one of which the format says that it is another queue's.
local function own_place(id, format)
  local place = wire_place(format, id)
  if place == 'done' and wire_of_another(format, id) then return nil end
  return place
end

-- The state of a job for display: its place on the wire, or the end that the engine's keys or the wire have
-- recorded. Returns the state, the last fence, and for a job ended by an admin action the op_id of that call.
local function place_of(run, id, format)
  local kept = own_words(run, 'fence', 'outcome', 'ended')
  local ended = { finished = true, cancelled = true, discarded = true, skipped = true, rerouted = true }
  local fence, place = own_number(kept[1]), own_place(id, format)
  if place then return place == 'done' and 'finished' or place, fence, kept[3] end
  if kept[3] and ended[kept[2]] then return kept[2], fence, kept[3] end
  local over = wire_ended(format, id)
  return over and over.state or 'gone', fence, kept[3]
end

-- The state of the existing job that an enqueue reports for a duplicate, and its last fence.
local function foreign_state(prefix, format, id)
  local run = own_words(prefix .. 'run:' .. id, 'fence', 'outcome', 'nonce')
  local place = own_place(id, format)
  local shown = { done = 'finished' }
  local state = place and (shown[place] or place) or run[3] == '' and run[2] or 'gone'
  return state, own_number(run[1])
end

-- One page of the jobs in a state, in the order of the format or from its end. Each has its id and its time
-- (ms, 0 if the format has none). Active jobs that this engine leases have the time of the lease; `stuck` are
-- those without a live lease or lock.
local function jobs_at(active, state, offset, limit, newest, now_ms, format)
  local found = {}
  local function take(from, count)
    local words = wire_list(format, state == 'stuck' and 'active' or state == 'finished' and 'done' or state,
      from, count, newest)
    for at = 1, #words, 2 do
      local id, score = words[at], tonumber(words[at + 1] or 0) or 0
      if state == 'active' or state == 'stuck' then
        score = tonumber(redis.call('ZSCORE', active, id)) or score
      end
      found[#found + 1] = { id = id, score = score }
    end
    return #words / 2
  end
  if state == 'blocked' then return found end
  if state ~= 'stuck' then
    take(offset, limit)
    return found
  end
  local from, kept = 0, {}
  repeat
    found = {}
    local seen = take(from, PIECE)
    for _, entry in ipairs(found) do
      local ours = redis.call('ZSCORE', active, entry.id)
      if entry.score < now_ms and (ours or not wire_locked(format, entry.id)) then kept[#kept + 1] = entry end
    end
    from = from + seen
  until seen < PIECE or #kept >= offset + limit
  local page = {}
  for at = offset + 1, math.min(#kept, offset + limit) do page[#page + 1] = kept[at] end
  return page
end

-- Move jobs back to the waiting ones that a foreign client has taken and, by the rules of its format, no
-- longer holds. A stray must have been seen a second before, because formats that take and lock a job in two
-- steps leave it without a lock for a moment. Looks at 1,000 and moves at most `most`. Returns the ids, how
-- many have moved, and whether there are more to move.
local function strays_back(prefix, active, now_ms, most, format, events)
  local strays, back, seen, moved, more = prefix .. 'strays', {}, {}, 0, false
  local found = wire_strays(format, 1000, function(id) return redis.call('ZSCORE', active, id) end)
  for _, id in ipairs(found) do
    seen[id] = true
    local since_ms = tonumber(redis.call('ZSCORE', strays, id))
    if not since_ms or since_ms > now_ms then
      redis.call('ZADD', strays, now_ms, id)
    elseif now_ms - since_ms >= 1000 then
      more = more or moved == most
      if moved < most then
        moved = moved + 1
        local job = wire_read(format, id)
        if job and job.kind == 'J' then
          wire_back(format, id, job)
        else
          wire_set_aside(format, id, nil, job and job.why or 'no job is behind this id')
          redis.call('HINCRBY', prefix .. 'stats', 'aside', 1)
        end
        redis.call('ZREM', strays, id)
        -- Only a valid id can be returned to the caller; an invalid one is set aside when it is claimed.
        if nameable(id) then back[#back + 1] = id end
        if events then table.insert(events, { 'reaped', id, job and job.name or '', 'foreign' }) end
      end
    end
  end
  for _, id in ipairs(redis.call('ZRANGE', strays, 0, 999)) do
    if not seen[id] then redis.call('ZREM', strays, id) end
  end
  return back, moved, more
end

-- End the pauses whose time is over, on the wire too, where pauses have no end.
local function lift_pauses(prefix, now_ms, format)
  local rest = prefix .. 'rest'
  for _, member in ipairs(redis.call('ZRANGE', rest, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100)) do
    local name = string.sub(member, 3)
    redis.call('HDEL', prefix .. 'paused', name)
    wire_resume(format, name)
    redis.call('ZREM', rest, member)
  end
end

-- Milliseconds until the next lease end, due time, tick or end of a pause, at most `most_ms`: how long a
-- sweeper may sleep (rule 13). While nothing is reaped after a stall (rule 11), an expired lease is checked
-- again when that wait is over, not at once.
local function sleep_for(prefix, now_ms, most_ms, format)
  local soonest, active = now_ms + most_ms, prefix .. 'active'
  for _, key in ipairs({ active, prefix .. 'rest', prefix .. 'cron' }) do
    local at_ms = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or soonest)
    if key == active and at_ms <= now_ms then
      at_ms = math.max(at_ms, tonumber(redis.call('HGET', prefix .. 'sweep', 'no_reap_before_ms') or 0))
    end
    soonest = math.min(soonest, at_ms)
  end
  return math.max(0, math.min(soonest, wire_next_due_ms(format) or soonest) - now_ms)
end
