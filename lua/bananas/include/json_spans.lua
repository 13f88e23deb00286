-- Where the members of a JSON object are in its text, by name: `start` of the name, `from` and `to` of the value. The text is known to
-- be valid; of a name that comes twice the last one counts, as it does for who reads it.
local function json_spans(text)
  local members, at = {}, string.find(text, '{', 1, true) + 1
  -- The place behind a string that begins at `from`.
  local function past_string(from)
    local place = from + 1
    while true do
      place = string.find(text, '["\\]', place)
      if string.sub(text, place, place) == '"' then return place + 1 end
      place = place + 2
    end
  end
  local function past_value(from)
    local depth, place = 0, from
    repeat
      local char = string.sub(text, place, place)
      if char == '"' then
        place = past_string(place)
      elseif char == '{' or char == '[' then
        depth, place = depth + 1, place + 1
      elseif char == '}' or char == ']' then
        depth, place = depth - 1, place + 1
      else
        place = string.find(text, depth > 0 and '["{}%[%]]' or '[,}%s]', place)
      end
    until depth == 0
    return place
  end
  while true do
    local start = string.find(text, '["}]', at)
    if string.sub(text, start, start) == '}' then return members end
    local behind = past_string(start)
    local from = string.match(text, '^%s*:%s*()', behind)
    local past = past_value(from)
    local name = cjson.decode('[' .. string.sub(text, start, behind - 1) .. ']')[1]
    members[name] = { start = start, from = from, to = past - 1 }
    at = past
  end
end
