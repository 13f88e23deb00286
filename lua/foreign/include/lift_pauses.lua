-- End the pauses whose time is over, on the wire too, which knows no end of them. Returns whether one ended, and the time (ms) of the next.
local function lift_pauses(prefix, now_ms, model)
  local rest, ended = prefix .. 'rest', false
  for _, member in ipairs(redis.call('ZRANGE', rest, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100)) do
    local name = string.sub(member, 3)
    redis.call('HDEL', prefix .. 'paused', name)
    if model.resume then model.resume(name) end
    redis.call('ZREM', rest, member)
    ended = true
  end
  return ended, tonumber(redis.call('ZRANGE', rest, 0, 0, 'WITHSCORES')[2])
end
