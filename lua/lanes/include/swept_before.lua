-- What a sweep has already moved and told: its words, so that another copy of the call repeats them (no words for a copy that is
-- older than that). Returns nil for a sweep that has moved nothing yet. Without the record the reply that got lost would have
-- been the only witness of the leases that it took.
local function swept_before(record, counter)
  local words = {}
  for word in string.gmatch(redis.call('GET', record) or '', '%S+') do words[#words + 1] = word end
  if not words[1] or tonumber(words[1]) < tonumber(counter) then return nil end
  if words[1] ~= counter then return {} end
  table.remove(words, 1)
  return words
end
