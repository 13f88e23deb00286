-- Rule 1: a key of the wrong type must stop the script before its first write. Each read tells, and the error names the key.
local function check_types(zsets, hashes, lists, strings)
  local function check(command, keys, wanted)
    for _, key in ipairs(keys) do
      local size = redis.pcall(command, key)
      if type(size) == 'table' then
        -- Any other error is the server's own to tell.
        if string.sub(size.err, 1, 9) ~= 'WRONGTYPE' then error(size) end
        error({ err = 'WRONGTYPE the key ' .. key .. ' is a ' .. redis.call('TYPE', key).ok .. ', it must be a ' .. wanted })
      end
    end
  end
  check('ZCARD', zsets, 'zset')
  check('HLEN', hashes, 'hash')
  check('LLEN', lists, 'list')
  check('STRLEN', strings or {}, 'string')
end
