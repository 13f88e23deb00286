-- Promote due jobs, first in, first out among equals: each in one step of the wire. Returns how many, and the ids behind which there is
-- no job any more.
local function foreign_promote(prefix, format, most)
  local promoted, corrupt = 0, {}
  for _, id in ipairs(format.due(most)) do
    if format.promote(id) == false then
      local shown = string.sub(string.gsub(id, '[^%w_.:>-]', '?'), 1, 256)
      corrupt[#corrupt + 1] = shown == '' and '?' or shown
      redis.call('HINCRBY', prefix .. 'stats', 'aside', 1)
    else
      promoted = promoted + 1
    end
  end
  return promoted, corrupt
end
