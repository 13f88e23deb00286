-- The job's JSON: reads what the wire needs of it, and writes single members anew. Everything else stays as whoever wrote it has
-- spelled it, bytes of the payload and all (cjson would round numbers and turn empty arrays into objects).
local function job_text(json_spans)
  local text = {}

  -- A text as a JSON string, escaped as Go does it; bytes that are no UTF-8 become U+FFFD.
  function text.quoted(given)
    local whole = string.gsub(given, '[%c"\\<>&\127]', function(char)
      local short = ({ ['"'] = '\\"', ['\\'] = '\\\\', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t', ['\8'] = '\\b', ['\12'] = '\\f',
        ['\127'] = '\127' })[char]
      return short or string.format('\\u%04x', string.byte(char))
    end)
    whole = string.gsub(whole, '[\128-\255]+', function(run)
      local parts, at = {}, 1
      while at <= #run do
        local lead = string.byte(run, at)
        local size = lead >= 240 and lead <= 244 and 4 or lead >= 224 and lead < 240 and 3 or lead >= 194 and lead < 224 and 2 or 0
        local piece = string.sub(run, at, at + size - 1)
        local second = string.byte(piece, 2) or 0
        local whole_char = size > 0 and #piece == size and not string.find(piece, '[\192-\255]', 2)
          and not (lead == 224 and second < 160) and not (lead == 237 and second > 159)
          and not (lead == 240 and second < 144) and not (lead == 244 and second > 143)
        if not whole_char then piece, size = '\239\191\189', 1 end
        if piece == '\226\128\168' then piece = '\\u2028' elseif piece == '\226\128\169' then piece = '\\u2029' end
        parts[#parts + 1], at = piece, at + size
      end
      return table.concat(parts)
    end)
    return '"' .. whole .. '"'
  end

  -- What is wrong with the members that a worker needs, nil where nothing is. Whoever wrote it in Go could not have done otherwise.
  local function wrong(job)
    for _, name in ipairs({ 'id', 'name', 'description', 'status', 'priority', 'routing_key', 'error' }) do
      local kind = job[name] == cjson.null and 'null' or type(job[name])
      if job[name] ~= nil and kind ~= 'string' and kind ~= 'null' then return name .. ' is a ' .. kind .. ', it must be a string' end
    end
    for _, name in ipairs({ 'attempts', 'max_retries' }) do
      local value = job[name]
      if value ~= nil and value ~= cjson.null and (type(value) ~= 'number' or value ~= math.floor(value) or math.abs(value) > 2 ^ 53) then
        return name .. ' is no whole number'
      end
    end
    if type(job.name) ~= 'string' or job.name == '' then return 'it has no name' end
    return nil
  end

  -- The members that matter, or nil and why the text is no job.
  function text.open(body)
    if not string.find(body, '^%s*{') then return nil, 'it is no JSON object' end
    local ok, job = pcall(cjson.decode, body)
    if not ok then return nil, (string.gsub(tostring(job), '^.-:%d+: ', '')) end
    local why = wrong(job)
    if why then return nil, why end
    for name, value in pairs(job) do
      if value == cjson.null then job[name] = nil end
    end
    return job
  end

  -- The text with some members changed: name -> JSON text, or false to take it out. One that was not there goes behind the member
  -- that Go writes before it.
  function text.with(body, changes)
    local order = { 'id', 'name', 'description', 'payload', 'status', 'priority', 'created_at', 'updated_at', 'scheduled_for', 'attempts',
      'max_retries', 'error' }
    local members, edits, after = json_spans(body), {}, nil
    for _, name in ipairs(order) do
      local known, value = members[name], changes[name]
      if known and value then
        edits[#edits + 1] = { known.from, known.to, value, #edits }
      elseif known and value == false then
        -- With one of its commas.
        local from, to = known.start, known.to
        local comma = string.match(string.sub(body, 1, from - 1), '()%s*,%s*$')
        if comma then from = comma else to = (string.match(body, '^%s*,%s*()', to + 1) or to + 1) - 1 end
        edits[#edits + 1] = { from, to, '', #edits }
      elseif value then
        local spot = after or string.find(body, '{', 1, true)
        local behind = not after and next(members) and ',' or ''
        edits[#edits + 1] = { spot + 1, spot, (after and ',' or '') .. '"' .. name .. '":' .. value .. behind, #edits }
      end
      if known then after = known.to end
    end
    -- What is put in comes before what is taken out behind it, and in its own order.
    table.sort(edits, function(one, other)
      if one[1] ~= other[1] then return one[1] < other[1] end
      if one[2] ~= other[2] then return one[2] < other[2] end
      return one[4] < other[4]
    end)
    local parts, at = {}, 1
    for _, edit in ipairs(edits) do
      parts[#parts + 1], parts[#parts + 2], at = string.sub(body, at, edit[1] - 1), edit[3], edit[2] + 1
    end
    parts[#parts + 1] = string.sub(body, at)
    return table.concat(parts)
  end

  return text
end
