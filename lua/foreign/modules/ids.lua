-- Ids of jobs in foreign formats: any text of UTF-8 but the empty one, also with spaces and controls in it.

-- Whether callers can name a job with this id: the rule of engine/models/model.py. What nobody can name stays
-- where it is.
local function nameable(id)
  if id == '' then return false end
  if not string.find(id, '[\128-\255]') then return #id <= 65536 end
  local rest = id
  for _, whole in ipairs({ '[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]',
      '[\225-\236\238\239][\128-\191][\128-\191]',
    '\237[\128-\159][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
    '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]' }) do
    rest = string.gsub(rest, whole, 'x')
  end
  return #rest <= 65536 and not string.find(rest, '[\128-\255]')
end

-- An id for replies that are read as text, where nobody can name it.
local function shown_id(id)
  if nameable(id) then return id end
  return id == '' and '?' or string.sub(string.gsub(id, '[^\32-\126]', '?'), 1, 256)
end

-- Words as one text with spaces between, as records of calls are kept: ids may hold spaces, and the signs of
-- a record.
local function record_of(words)
  local parts = {}
  for at, word in ipairs(words) do
    parts[at] = string.gsub(tostring(word), '[%%%s%c=]',
      function(sign) return string.format('%%%02x', string.byte(sign)) end)
    if parts[at] == '' then parts[at] = '%' end
  end
  return table.concat(parts, ' ')
end

-- The word of a record as it was.
local function recorded(word)
  if word == '%' then return '' end
  return (string.gsub(word, '%%(%x%x)', function(digits) return string.char(tonumber(digits, 16)) end))
end

-- The words of a record.
local function words_of(record)
  local words = {}
  for word in string.gmatch(record or '', '%S+') do words[#words + 1] = recorded(word) end
  return words
end
