-- Let the lanes of a key come back, at most one a class: something about the limit of the key has changed. Claims see what it allows
-- now. The wake lists that gain work are added to `wakes`.
-- helpers: ready_lane
local function lanes_back(prefix, key, turn, wakes, helpers)
  for _, class in ipairs(redis.call('HKEYS', prefix .. 'classes')) do
    local lane = class .. '/' .. key
    local wake = redis.call('HEXISTS', prefix .. 'parked', lane) == 1 and helpers.ready_lane(prefix, lane, turn)
    if wake then wakes[wake] = true end
  end
end
