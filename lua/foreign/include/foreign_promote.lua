-- Promote due jobs, first in, first out among equals. Returns how many, and the ids behind which there is no job any more. What is about to
-- move is noted first: of a call that was cut off the next one knows which of them may stand in two places, and looks before it adds.
local function foreign_promote(prefix, format, most)
  local promoted, corrupt, ids, moving, was = 0, {}, format.due(most), prefix .. 'moving', {}
  for _, id in ipairs(redis.call('SMEMBERS', moving)) do was[id] = true end
  if #ids == 0 and not next(was) then return 0, corrupt end
  for at = 1, #ids, PIECE do redis.call('SADD', moving, unpack(ids, at, math.min(at + PIECE - 1, #ids))) end
  for _, id in ipairs(ids) do
    if format.promote(id, was[id]) == false then
      local shown = string.sub(string.gsub(id, '[^%w_.:>-]', '?'), 1, 256)
      corrupt[#corrupt + 1] = shown == '' and '?' or shown
      redis.call('HINCRBY', prefix .. 'stats', 'aside', 1)
    else
      promoted = promoted + 1
    end
  end
  redis.call('DEL', moving)
  return promoted, corrupt
end
