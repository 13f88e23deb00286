-- One page of the jobs in a state, in its order or from its end: for each its id, the zset and the member of its index entry, and its
-- score. Waiting jobs lane by lane, the others by time; `stuck` are the active ones whose lease has ended.
-- helpers: lanes_of
local function jobs_in(prefix, state, offset, limit, newest, now_ms, helpers)
  local found, digits = {}, state == 'delayed' and 11 or 1
  local function take(key, words)
    local flat = redis.call('ZRANGE', key, unpack(words))
    for at = 1, #flat, 2 do
      found[#found + 1] = { id = string.sub(flat[at], digits), key = key, member = flat[at], score = tonumber(flat[at + 1]) }
    end
  end
  if state == 'stuck' then
    local before = '(' .. string.format('%d', now_ms)
    local range = newest and { before, '-inf', 'BYSCORE', 'REV' } or { '-inf', before, 'BYSCORE' }
    for _, word in ipairs({ 'LIMIT', offset, limit, 'WITHSCORES' }) do range[#range + 1] = word end
    take(prefix .. 'active', range)
    return found
  end
  local keys = { prefix .. (({ delayed = 'due', finished = 'done' })[state] or state) }
  if state == 'waiting' then
    keys = {}
    for _, lane in ipairs(helpers.lanes_of(prefix)) do table.insert(keys, newest and 1 or #keys + 1, prefix .. 'lane:' .. lane) end
  end
  for _, key in ipairs(keys) do
    local size = redis.call('ZCARD', key)
    if offset < size then
      local range = { offset, offset + limit - #found - 1 }
      if newest then range[3] = 'REV' end
      range[#range + 1] = 'WITHSCORES'
      take(key, range)
    end
    offset = math.max(0, offset - size)
    if #found >= limit then break end
  end
  return found
end
