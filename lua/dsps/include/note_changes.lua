-- Write what has changed of these fields of a hash, `now` by name; those that are no more go.
local function note_changes(hash, fields, kept, now)
  local words, gone = {}, {}
  for at, field in ipairs(fields) do
    if not now[field] then
      if kept[at] then gone[#gone + 1] = field end
    elseif now[field] ~= kept[at] then
      words[#words + 1], words[#words + 2] = field, now[field]
    end
  end
  if #words > 0 then redis.call('HSET', hash, unpack(words)) end
  if #gone > 0 then redis.call('HDEL', hash, unpack(gone)) end
end
