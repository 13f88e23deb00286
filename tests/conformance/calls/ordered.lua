local function pairs(walked)
  local found, at = {}, 0
  for key in next, walked do found[#found + 1] = key end
  table.sort(found, function(one, other) return tostring(one) < tostring(other) end)
  return function()
    repeat at = at + 1 until found[at] == nil or walked[found[at]] ~= nil
    if found[at] ~= nil then return found[at], walked[found[at]] end
  end
end
local function ordered(ask)
  local function pairs_of(found)
    local at, out = {}, {}
    for i = 1, #found, 2 do at[#at + 1] = { found[i], found[i + 1] } end
    table.sort(at, function(one, other) return one[1] < other[1] end)
    for i, each in ipairs(at) do out[2 * i - 1], out[2 * i] = each[1], each[2] end
    return out
  end
  local function sorted(found) table.sort(found) return found end
  return function(name, ...)
    if name == 'INFO' then return 'run_id:0' end
    local key, count = ...
    if name == 'SRANDMEMBER' or name == 'SPOP' or name == 'HRANDFIELD' then
      local all = ask(name == 'HRANDFIELD' and 'HKEYS' or 'SMEMBERS', key)
      if all.err then return all end
      local some = { unpack(sorted(all), 1, math.min(#all, tonumber(count or 1))) }
      if name == 'SPOP' and some[1] then ask('SREM', key, unpack(some)) end
      return (count and some) or some[1] or false
    elseif name == 'HVALS' then
      local all, values = ask('HGETALL', key), {}
      if all.err then return all end
      for i, value in ipairs(pairs_of(all)) do if i % 2 == 0 then values[i / 2] = value end end
      return values
    end
    local found = ask(name, ...)
    if type(found) ~= 'table' or found.err then return found end
    if name == 'HGETALL' then return pairs_of(found) end
    if name == 'SMEMBERS' or name == 'HKEYS' then return sorted(found) end
    if name == 'SCAN' or name == 'SSCAN' then sorted(found[2]) end
    if name == 'HSCAN' then found[2] = pairs_of(found[2]) end
    return found
  end
end
local redis = setmetatable({ call = ordered(redis.call), pcall = ordered(redis.pcall) }, { __index = redis })
