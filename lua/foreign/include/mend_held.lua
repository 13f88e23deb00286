-- Free slots of limits that no lease holds any more: what a call that was cut off has left (rule 20). At most 100 of each limit a call.
local function mend_held(prefix, active, now_ms)
  for _, limit in ipairs(redis.call('HKEYS', prefix .. 'limits')) do
    local held = prefix .. 'held:' .. limit
    for _, id in ipairs(redis.call('ZRANGE', held, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100)) do
      if not redis.call('ZSCORE', active, id) then redis.call('ZREM', held, id) end
    end
  end
end
