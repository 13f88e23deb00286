-- The state of a job for people: where the wire has it, or how our side or the wire say that it has ended. Returns it, the last fence, and
-- for one that was ended by hand the identity of that call.
local function place_of(run, id, model)
  local kept = redis.call('HMGET', run, 'fence', 'outcome', 'ended')
  local ended = { finished = true, cancelled = true, discarded = true, skipped = true, rerouted = true }
  local fence, place = tonumber(kept[1] or 0), model.place(id)
  if place then return place == 'done' and 'finished' or place, fence, kept[3] end
  if kept[3] and ended[kept[2]] then return kept[2], fence, kept[3] end
  local over = model.ended(id)
  return over and over.state or 'gone', fence, kept[3]
end
