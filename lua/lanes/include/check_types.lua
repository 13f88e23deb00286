-- Rule 1: a key of the wrong type must stop the script before its first write. Each read raises WRONGTYPE.
local function check_types(zsets, hashes, lists)
  for _, key in ipairs(zsets) do redis.call('ZCARD', key) end
  for _, key in ipairs(hashes) do redis.call('HLEN', key) end
  for _, key in ipairs(lists) do redis.call('LLEN', key) end
end
