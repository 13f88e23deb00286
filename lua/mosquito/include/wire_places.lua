-- The four structures of a queue in either layout: `document` keeps them as sorted sets, `live` keeps waiting, pending and dead as lists
-- that are pushed at the left and read from the right, and scheduled as a sorted set. `which` is one of their names.
local function wire_places(keys, layout, now_ms)
  local places, live = {}, layout == 'live'
  local function is_list(which) return live and which ~= 'scheduled' end
  -- A sorted set has no end of its own: what comes last scores above all that is there, by the least step that the precision of a time in ms
  -- leaves, and what comes first below. So the order of arrival holds within one ms as well, and when the clock steps back.
  local function score_at(key, first)
    local edge = redis.call('ZRANGE', key, 0, 0, unpack(first and { 'WITHSCORES' } or { 'REV', 'WITHSCORES' }))
    local score = tonumber(edge[2])
    if not score or score ~= score or (not first and score < now_ms) then score = now_ms
    elseif first then score = math.min(score - 0.0009765625, now_ms)
    else score = score + 0.0009765625 end
    return string.format('%.17g', score)
  end
  function places.push(which, id, first)
    if is_list(which) then return redis.call(first and 'RPUSH' or 'LPUSH', keys[which], id) end
    local score = which == 'waiting' and score_at(keys.waiting, first) or string.format('%d', now_ms)
    redis.call('ZADD', keys[which], score, id)
  end
  -- How many entries of the id there were.
  function places.drop(which, id)
    if is_list(which) then return redis.call('LREM', keys[which], 0, id) end
    return redis.call('ZREM', keys[which], id)
  end
  -- The entry of a waiting job that is claimed next among those of the id.
  function places.drop_next(id)
    if not live then return redis.call('ZREM', keys.waiting, id) end
    if redis.call('LINDEX', keys.waiting, -1) == id then return #redis.call('RPOP', keys.waiting) end
    return redis.call('LREM', keys.waiting, -1, id)
  end
  -- Of a list the whole, or with `most` the newest so many entries.
  function places.has(which, id, most)
    if is_list(which) then return redis.call('LPOS', keys[which], id, 'MAXLEN', most or 0) and true or false end
    return redis.call('ZSCORE', keys[which], id) and true or false
  end
  function places.size(which)
    return redis.call(is_list(which) and 'LLEN' or 'ZCARD', keys[which])
  end
  -- A page of ids and their scores, the longest there first; a list has no scores.
  function places.page(which, from, count, newest_first)
    local ids, scores = {}, {}
    if is_list(which) and newest_first then
      ids = redis.call('LRANGE', keys[which], from, from + count - 1)
    elseif is_list(which) then
      local found = redis.call('LRANGE', keys[which], -from - count, -from - 1)
      for at = #found, 1, -1 do ids[#ids + 1] = found[at] end
    else
      local words = newest_first and { 'REV', 'WITHSCORES' } or { 'WITHSCORES' }
      local found = redis.call('ZRANGE', keys[which], from, from + count - 1, unpack(words))
      for at = 1, #found, 2 do ids[#ids + 1], scores[#scores + 1] = found[at], found[at + 1] end
    end
    return ids, scores
  end
  -- A key of the wrong type stops the script before its first write, and the error says which layout it would fit.
  function places.check(check_types)
    local three = { keys.waiting, keys.pending, keys.dead }
    local zsets, lists = { keys.scheduled, keys.queues }, live and three or {}
    for _, key in ipairs(live and {} or three) do zsets[#zsets + 1] = key end
    local fine, failure = pcall(check_types, zsets, {}, lists, { keys.pause })
    if fine then return end
    local text, hint = type(failure) == 'table' and failure.err or tostring(failure), ''
    local wrong, found = string.match(text, '^WRONGTYPE the key (.*) is a (%a+), it must be')
    for _, key in ipairs(three) do
      if wrong == key and found == (live and 'zset' or 'list') then
        hint = live and "; the layout 'document' keeps it as a zset" or "; the layout 'live', which the original programs write, keeps it as a list"
      end
    end
    error({ err = text .. hint })
  end
  return places
end
