-- The values of the clock and other strings, false for none; refused while the slot moves between two nodes (rules 1 and 27).
-- Both of them refuse a command with several keys of which one is missing, and here one always is: what comes after it sees all
-- bodies, which are not in KEYS. Nothing was written yet, so the call is simply sent again.
local function settled_clock(well, bodies, keys)
  local found, absent = redis.pcall('MGET', bodies .. 'absent', unpack(keys)), {}
  if found.err then error({ err = 'TRYAGAIN the slot of the channel is on the move' }) end
  table.remove(found, 1)
  for at, key in ipairs(keys) do
    if not found[at] then absent[#absent + 1] = key end
  end
  -- A key of another type reads as none as well.
  if #absent > 0 and redis.call('EXISTS', unpack(absent)) > 0 then
    for _, key in ipairs(absent) do well(key, 'string', redis.pcall('GET', key)) end
  end
  return found
end
