-- How many more leases a limit allows now (rule 20). Returns room, then, where its rate is used up, the time at which a place in the
-- window, or `need` of them, come free, the entries of the window that a clock which stepped back has left ahead of now (rule 10).
-- definition: concurrency rate per_ms fixed|sliding, 0 where there is none.
local function limit_room(prefix, limit, definition, now_ms, need)
  local slots, rate, per_ms, kind = string.match(definition, '^(%d+) (%d+) (%d+) (%a+)$')
  slots, rate, per_ms = tonumber(slots), tonumber(rate), tonumber(per_ms)
  local room = slots > 0 and slots - redis.call('ZCARD', prefix .. 'held:' .. limit) or math.huge
  if rate == 0 then return room, nil, nil, math.huge end
  need = math.min(need or 1, rate)
  local key = prefix .. 'rate:' .. limit
  local start_ms = kind == 'fixed' and now_ms - now_ms % per_ms or now_ms - per_ms + 1 -- anchor: fixed-window-begins-at-its-start
  local used = redis.call('ZCOUNT', key, start_ms, '+inf')
  local until_ms = start_ms + per_ms
  local over = used + need > rate
  if over and kind == 'sliding' then
    local oldest = redis.call('ZRANGE', key, start_ms, '+inf', 'BYSCORE', 'LIMIT', used + need - rate - 1, 1, 'WITHSCORES')
    until_ms = math.min(tonumber(oldest[2]), now_ms) + per_ms
  end
  local ahead = redis.call('ZRANGE', key, '(' .. string.format('%d', now_ms), '+inf', 'BYSCORE', 'LIMIT', 0, 100000)
  return over and 0 or math.min(room, rate - used), over and until_ms or nil, ahead, rate - used, rate
end
