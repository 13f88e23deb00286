-- One page of the jobs in a state, in the order of the format or from its end: for each its id and its time (ms, 0 where the format has
-- none). Leases are ours, so the active ones have the time of the lease; `stuck` are those of which nobody keeps a lease or a lock.
local function jobs_at(active, state, offset, limit, newest, now_ms, model)
  local found = {}
  local function take(from, count)
    local words = model.list(state == 'stuck' and 'active' or state == 'finished' and 'done' or state, from, count, newest)
    for at = 1, #words, 2 do
      local id, score = words[at], tonumber(words[at + 1] or 0) or 0
      if state == 'active' or state == 'stuck' then score = tonumber(redis.call('ZSCORE', active, id)) or score end
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
      if entry.score < now_ms and (ours or not model.locked(entry.id)) then kept[#kept + 1] = entry end
    end
    from = from + seen
  until seen < PIECE or #kept >= offset + limit
  local page = {}
  for at = offset + 1, math.min(#kept, offset + limit) do page[#page + 1] = kept[at] end
  return page
end
