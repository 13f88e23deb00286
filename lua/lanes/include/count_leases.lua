-- Count new leases against a limit: their slots, and their places in the window of its rate (rule 20), <id>:<fence>, and for a job
-- that costs more <id>:<fence>:2 and so on. leases: ids, fences, costs; limit: limit, definition, ahead.
-- helpers: rate_back
local function count_leases(prefix, limit, leases, deadline_ms, now_ms, helpers)
  local slots, rate, per_ms = string.match(limit.definition, '^(%d+) (%d+) (%d+)')
  local held, used = {}, {}
  for at, id in ipairs(leases.ids) do
    held[2 * at - 1], held[2 * at] = deadline_ms, id
    local place = id .. ':' .. leases.fences[at]
    for unit = 1, math.min(leases.costs[at], tonumber(rate)) do -- anchor: rate-is-charged-the-cost-of-the-job
      used[#used + 1], used[#used + 2] = now_ms, unit == 1 and place or string.format('%s:%d', place, unit)
    end
  end
  if slots ~= '0' then -- anchor: lease-holds-a-slot
    -- anchor: every-lease-holds-a-slot
    for at = 1, #held, PIECE do redis.call('ZADD', prefix .. 'held:' .. limit.limit, unpack(held, at, math.min(at + PIECE - 1, #held))) end
  end
  if rate ~= '0' then -- anchor: claims-count-in-the-rate
    local key = prefix .. 'rate:' .. limit.limit
    helpers.rate_back(prefix, limit.limit, limit.ahead, now_ms)
    -- anchor: every-claim-counts-in-the-rate
    for at = 1, #used, PIECE do redis.call('ZADD', key, unpack(used, at, math.min(at + PIECE - 1, #used))) end
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms - tonumber(per_ms))
    redis.call('PEXPIREAT', key, now_ms + tonumber(per_ms))
  end
end
