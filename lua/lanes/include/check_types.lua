-- Rule 1: a key of the wrong type must stop the script before its first write. Each read tells, and the error names the key.
local function check_types(zsets, hashes, lists, strings)
  local pcall, wrong, wanted, found = redis.pcall, nil, nil, nil
  for _, key in ipairs(zsets) do
    found = pcall('ZCARD', key)
    if type(found) == 'table' then wrong, wanted = key, 'zset' break end
  end
  for _, key in ipairs(wrong and {} or hashes) do
    found = pcall('HLEN', key)
    if type(found) == 'table' then wrong, wanted = key, 'hash' break end
  end
  for _, key in ipairs(wrong and {} or lists) do
    found = pcall('LLEN', key)
    if type(found) == 'table' then wrong, wanted = key, 'list' break end
  end
  for _, key in ipairs(wrong and {} or strings or {}) do
    found = pcall('STRLEN', key)
    if type(found) == 'table' then wrong, wanted = key, 'string' break end
  end
  if not wrong then return end
  -- Any other error is the server's own to tell.
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then error(found) end
  error({ err = 'WRONGTYPE the key ' .. wrong .. ' is a ' .. redis.call('TYPE', wrong).ok .. ', it must be a ' .. wanted })
end
