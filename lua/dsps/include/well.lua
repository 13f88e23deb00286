-- Rule 1: a key of the wrong type must stop the script before its first write. `found` is the reply of a pcall; an error names the
-- key and both types, any other error is the server's own to tell.
local function well(key, wanted, found)
  if type(found) ~= 'table' or not found.err then return found end
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then error(found) end
  error({ err = 'WRONGTYPE the key ' .. key .. ' is a ' .. redis.call('TYPE', key).ok .. ', it must be a ' .. wanted })
end
