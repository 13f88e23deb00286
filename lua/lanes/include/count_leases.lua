-- Count new leases against a limit: their slots, and their places in the window of its rate (rule 20). `ids` and `fences` of the
-- leases; limit: limit, definition, ahead.
-- helpers: rate_back
local function count_leases(prefix, limit, ids, fences, deadline_ms, now_ms, helpers)
  local slots, rate, per_ms = string.match(limit.definition, '^(%d+) (%d+) (%d+)')
  local held, used = {}, {}
  for at, id in ipairs(ids) do
    held[2 * at - 1], held[2 * at] = deadline_ms, id
    used[2 * at - 1], used[2 * at] = now_ms, id .. ':' .. fences[at]
  end
  if slots ~= '0' then
    for at = 1, #held, 1000 do redis.call('ZADD', prefix .. 'held:' .. limit.limit, unpack(held, at, math.min(at + 999, #held))) end
  end
  if rate ~= '0' then
    local key = prefix .. 'rate:' .. limit.limit
    helpers.rate_back(prefix, limit.limit, limit.ahead, now_ms)
    for at = 1, #used, 1000 do redis.call('ZADD', key, unpack(used, at, math.min(at + 999, #used))) end
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms - tonumber(per_ms))
    redis.call('PEXPIREAT', key, now_ms + tonumber(per_ms))
  end
end
