-- All lanes that may hold jobs, each once, at most 100,000 a place: the ready ones of every class, and the parked ones.
local function lanes_of(prefix)
  local lanes, known = {}, {}
  local places = { redis.call('HKEYS', prefix .. 'parked') }
  for _, class in ipairs(redis.call('HKEYS', prefix .. 'classes')) do
    places[#places + 1] = redis.call('ZRANGE', prefix .. 'ready:' .. class, 0, 99999)
  end
  for _, place in ipairs(places) do
    for _, lane in ipairs(place) do
      if not known[lane] then
        known[lane] = true
        lanes[#lanes + 1] = lane
      end
    end
  end
  return lanes
end
