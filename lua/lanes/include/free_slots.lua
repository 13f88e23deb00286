-- A lease that counted against limits has ended: free its slots (rule 20). A key's slot lets all lanes of that key come back, at
-- most one a class: which of them may use it, their classes decide. That of a name may be used by any class with that name. `words` is the field `limits` of the run; the wake lists that
-- gain work are added to `wakes`.
-- helpers: ready_lane
local function free_slots(prefix, words, id, turn, wakes, helpers)
  for limit in string.gmatch(words or '', '%S+') do
    redis.call('ZREM', prefix .. 'held:' .. limit, id)
    local name = string.sub(limit, 3)
    if string.sub(limit, 1, 2) == 'n:' then
      for class in string.gmatch(name .. (redis.call('HGET', prefix .. 'routed', name) or ''), '%S+') do
        -- anchor: freed-slot-leaves-a-marker
        if redis.call('ZCARD', prefix .. 'ready:' .. class) > 0 then wakes[prefix .. 'wake:' .. class] = true end
      end
    else
      for _, lane in ipairs(redis.call('ZRANGE', prefix .. 'parked:' .. limit, 0, 99)) do -- anchor: freed-slot-calls-parked-lanes
        local wake = helpers.ready_lane(prefix, lane, turn)
        redis.call('ZREM', prefix .. 'parked:' .. limit, lane)
        if wake then wakes[wake] = true end
      end
    end
  end
end
