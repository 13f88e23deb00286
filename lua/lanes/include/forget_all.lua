-- Take away what a queue without jobs still has (forget.lua), a piece of what may be many. Returns whether there is more.
-- helpers: let_go, envelope_open, tell_news
local function forget_all(prefix, now_ms, helpers)
  local known = {}
  for _, limit in ipairs(redis.call('HVALS', prefix .. 'parked')) do known[limit] = true end
  for _, limit in ipairs(redis.call('ZRANGE', prefix .. 'blocking', 0, -1)) do known[limit] = true end
  for limit in pairs(known) do redis.call('DEL', prefix .. 'parked:' .. limit) end
  for _, class in ipairs(redis.call('HKEYS', prefix .. 'classes')) do
    redis.call('DEL', prefix .. 'ready:' .. class, prefix .. 'wake:' .. class)
  end
  for _, name in ipairs(redis.call('ZRANGE', prefix .. 'took', 0, -1)) do redis.call('DEL', prefix .. 'took:' .. name) end
  redis.call('DEL', prefix .. 'took', prefix .. 'classes', prefix .. 'routed', prefix .. 'parked', prefix .. 'rest', prefix .. 'blocking', prefix .. 'stats',
    prefix .. 'events', prefix .. 'handing', prefix .. 'witness')
  -- Whose pause or number of handlers was set learns that it is no more.
  local set = {}
  for _, field in ipairs(redis.call('HKEYS', prefix .. 'settings')) do
    if field ~= 'version' then set[#set + 1] = field end
  end
  -- Told before they go: cut off in between, the next copy still finds them and tells it once more.
  if set[1] then helpers.tell_news(prefix, now_ms) end
  for at = 1, #set, PIECE do redis.call('HDEL', prefix .. 'settings', unpack(set, at, math.min(at + PIECE - 1, #set))) end
  redis.call('ZREMRANGEBYSCORE', prefix .. 'workers', '-inf', '(' .. string.format('%d', now_ms))
  -- Nobody waits for these jobs any more.
  local feeding = redis.call('SRANDMEMBER', prefix .. 'feeding', PIECE)
  for _, parent in ipairs(feeding) do
    redis.call('UNLINK', prefix .. 'feeds:' .. parent)
    redis.call('SREM', prefix .. 'feeding', parent)
  end
  -- Whatever their children are taken for: the caller asks again until none is left.
  for _, parent in ipairs(redis.call('ZRANGE', prefix .. 'keeping', 0, 199)) do
    redis.call('UNLINK', prefix .. 'heirs:' .. parent, prefix .. 'feeds:' .. parent)
  end
  helpers.let_go(prefix, now_ms, 200, helpers)
  return redis.call('EXISTS', prefix .. 'feeding', prefix .. 'keeping') > 0
end
