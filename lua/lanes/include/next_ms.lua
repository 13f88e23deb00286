-- Milliseconds until the next lease end or due time, at most `most_ms`: how long a sweeper may sleep (rule 13).
local function next_ms(active, due, now_ms, most_ms)
  local soonest = now_ms + most_ms
  for _, key in ipairs({ active, due }) do
    local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if head[2] and tonumber(head[2]) < soonest then soonest = tonumber(head[2]) end
  end
  return math.max(0, soonest - now_ms)
end
