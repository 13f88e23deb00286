-- Free the slots of the limits that a lease counts against, their names with spaces between (rule 20).
local function free_held(prefix, id, limits)
  for limit in string.gmatch(limits or '', '%S+') do redis.call('ZREM', prefix .. 'held:' .. limit, id) end
end
