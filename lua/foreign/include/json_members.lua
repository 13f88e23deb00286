-- The top-level members of a JSON object's text, without decoding it: what is not changed keeps its bytes, so numbers keep their
-- spelling and payloads every byte. Returns nil for text that is no object. What is inside of a member's value is not checked.
--   raw(name)        the text of a value, nil where there is none; of two members with one name the last
--   value(name)      a text, number or boolean; nil for null, for objects and lists, and where there is none
--   set(name, text)  put the text in the place of the value, or behind all others
--   text()           the object
local function json_members(text)
  local names, spans = {}, {}
  -- Where the string that begins at `at` ends.
  local function string_end(at)
    at = at + 1
    while true do
      local found = string.find(text, '["\\]', at)
      if not found then return nil end
      if string.byte(text, found) == 34 then return found end
      at = found + 2
    end
  end
  local function value_end(at)
    local head = string.sub(text, at, at)
    if head == '"' then return string_end(at) end
    if head ~= '{' and head ~= '[' then
      local scalar = string.match(text, '^[%-%+%.%w]+', at)
      local known = scalar and (scalar == 'true' or scalar == 'false' or scalar == 'null' or tonumber(scalar))
      return known and at + #scalar - 1 or nil
    end
    local depth, place = 0, at
    while true do
      place = string.find(text, '[%[%]{}"]', place)
      if not place then return nil end
      local mark = string.byte(text, place)
      if mark == 34 then
        place = string_end(place)
        if not place then return nil end
      elseif mark == 123 or mark == 91 then
        depth = depth + 1
      else
        depth = depth - 1
        if depth == 0 then return place end
      end
      place = place + 1
    end
  end
  local at = type(text) == 'string' and string.match(text, '^%s*{%s*()')
  if not at then return nil end
  local last = at - 1
  local closed = string.match(text, '^}%s*$', at)
  while not closed do
    local name_end = string.sub(text, at, at) == '"' and string_end(at)
    local first = name_end and string.match(text, '^%s*:%s*()', name_end + 1)
    last = first and value_end(first)
    if not last then return nil end
    local name = string.sub(text, at + 1, name_end - 1)
    -- Hardly any name is written otherwise than it reads.
    if string.find(name, '[%c\\]') then
      local read, decoded = pcall(cjson.decode, '["' .. name .. '"]')
      if not read then return nil end
      name = decoded[1]
    end
    names[#names + 1] = name
    spans[name] = { first, last }
    closed = string.match(text, '^%s*}%s*$', last + 1)
    at = closed or string.match(text, '^%s*,%s*()', last + 1)
    if not at then return nil end
  end
  local object = {}
  function object.raw(name)
    return spans[name] and string.sub(text, spans[name][1], spans[name][2])
  end
  function object.value(name)
    local raw = object.raw(name) or 'null'
    if string.find(raw, '^"[^%c\\]*"$') then return string.sub(raw, 2, -2) end
    if string.find(raw, '^%-?%d+$') and #raw < 16 then return tonumber(raw) end
    local read, value = pcall(cjson.decode, '[' .. raw .. ']')
    value = read and value[1]
    if value == cjson.null or type(value) == 'table' or not read then return nil end
    return value
  end
  function object.set(name, raw)
    local span = spans[name]
    if span then
      text = string.sub(text, 1, span[1] - 1) .. raw .. string.sub(text, span[2] + 1)
      local more, from = #raw - (span[2] - span[1] + 1), span[2]
      span[2], last = span[2] + more, last + more
      for _, other in pairs(spans) do
        if other[1] > from then other[1], other[2] = other[1] + more, other[2] + more end
      end
      return
    end
    local head = (#names > 0 and ',' or '') .. cjson.encode(name) .. ':'
    text = string.sub(text, 1, last) .. head .. raw .. string.sub(text, last + 1)
    names[#names + 1] = name
    spans[name] = { last + #head + 1, last + #head + #raw }
    last = last + #head + #raw
  end
  function object.text()
    return text
  end
  return object
end
