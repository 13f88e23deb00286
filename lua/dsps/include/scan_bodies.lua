-- One step of a scan of all keys for bodies, about `looks` of them. The scan's cursor, server and goal are kept in `index.scan`; a
-- cursor means nothing to another server process. At its end all that lives up to its goal is in the index. Returns the looks taken.
local function scan_bodies(bodies, index, at, looks, helpers)
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  local cursor, started, goal = string.match(index.scan or '', '^(%d+) (%w+) (%-?%d+)$')
  if started ~= run then cursor, goal = '0', string.format('%d', at) end
  -- The server goes on to the end of a bucket, so it may look at some more than it is told.
  local page, found, longest_ms = redis.call('SCAN', cursor, 'MATCH', bodies .. '*', 'COUNT', looks - 100), {}, 0
  for _, key in ipairs(page[2]) do
    local text = string.sub(key, #bodies + 1)
    local clock = string.match(text, '^%-?%d+$') and tonumber(text)
    if clock and string.format('%d', clock) == text and not helpers.clock_after(clock, at) then
      local left_ms = redis.call('PTTL', key)
      found[#found + 1], longest_ms = text, math.max(longest_ms, left_ms == -1 and 9007199254740991 or left_ms)
    end
  end
  helpers.add(found, longest_ms)
  if page[1] ~= '0' then
    index.scan = page[1] .. ' ' .. run .. ' ' .. goal
    return looks
  end
  index.scan, index.known = nil, 'all'
  if helpers.clock_after(tonumber(goal), index.upto) then index.upto = tonumber(goal) end
  return math.min(looks, redis.call('DBSIZE'))
end
