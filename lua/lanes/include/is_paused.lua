-- Whether a class, or with it the whole queue, is paused now. `paused` is the hash of the pauses: class or * -> until_ms (0 = until
-- it is resumed) and the length of the pause in ms.
local function is_paused(paused, class, now_ms)
  for _, pause in ipairs(redis.call('HMGET', paused, '*', class)) do
    local until_ms = pause and tonumber(string.match(pause, '^%d+'))
    if until_ms and (until_ms == 0 or until_ms > now_ms) then return true end
  end
  return false
end
