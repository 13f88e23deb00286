-- Whether the jobs of a class, or the whole queue, are paused now. `paused` is the hash of the pauses: name of jobs or * -> until_ms
-- (0 = until it is resumed) and the length of the pause in ms. A class is its name, and @ with what it wants of a worker.
local function is_paused(paused, class, now_ms)
  for _, pause in ipairs(redis.call('HMGET', paused, '*', string.match(class, '^[^@]*'))) do
    local until_ms = pause and tonumber(string.match(pause, '^%d+'))
    if until_ms and (until_ms == 0 or until_ms > now_ms) then return true end
  end
  return false
end
