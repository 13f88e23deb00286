-- The index of living messages, and the search for those of foreign clients.

-- The next clocks of the index in (position, goal] on the circle, as text; those before the wrap by themselves.
local function next_live(live, position, goal, count)
  local after = string.format('(%d', position)
  if position < goal then return redis.call('ZRANGE', live, after, string.format('%d', goal), 'BYSCORE', 'LIMIT', 0, count) end
  local found = redis.call('ZRANGE', live, after, '+inf', 'BYSCORE', 'LIMIT', 0, count)
  if #found > 0 then return found end
  return redis.call('ZRANGE', live, '-inf', string.format('%d', goal), 'BYSCORE', 'LIMIT', 0, count)
end

-- The first clocks of the index, as text: those before the wrap come first.
local function oldest(live, clock, count)
  if clock < 0 then
    local before = expect_type(live, 'zset', redis.pcall('ZRANGE', live, 1, '+inf', 'BYSCORE', 'LIMIT', 0, count))
    if #before > 0 then return before end
  end
  return expect_type(live, 'zset', redis.pcall('ZRANGE', live, 0, count - 1))
end

-- Put the clocks of living messages, as text, into the index.
local function index_all(live, clocks)
  local words = {}
  for at, clock in ipairs(clocks) do
    words[#words + 1], words[#words + 2] = clock, clock
    if #words == PIECE or at == #clocks then
      redis.call('ZADD', live, unpack(words))
      words = {}
    end
  end
end

-- Put clocks that were found alive into the index. `longest_ms`: how long the last of them will live.
local function index_found(meta, live, found, longest_ms)
  if #found == 0 then return end
  note_longest(meta, longest_ms, true)
  index_all(live, found)
end

-- Find more of the living messages that the index lacks, for a subscriber whose cursor is `own` in a channel that is at `at`; the
-- index then says how far it has come. Returns how many looks are left of this call's, and whether messages right after the cursor
-- are still unknown, so that none may be delivered yet.
local function index_more(meta, live, bodies, index, own, at)
  local steps, looks = clock_steps, 1000
  local function before()
    return index.known ~= 'all' and clock_after(index.known, own) and steps(own, index.known) or 0
  end
  if before() == 0 and index.upto == at then return looks, false end
  local most = math.max(before(), steps(index.upto, at))
  if index.scan or most > looks and most > redis.call('DBSIZE') then
    -- Half of the looks are for messages that are known of, where there may be some.
    looks = looks - scan_bodies(meta, live, bodies, index, at, before() > 0 and looks or looks / 2)
    if index.scan then return looks, before() > 0 end
  end
  local count = math.min(before(), looks)
  if count > 0 then
    index_found(meta, live, look_around(bodies, index.known, -1, count))
    index.known, looks = clock_ahead(index.known, -count), looks - count
  end
  count = math.min(steps(index.upto, at), looks - 500)
  if count > 0 then
    index_found(meta, live, look_around(bodies, clock_ahead(index.upto, 1), 1, count))
    index.upto, looks = clock_ahead(index.upto, count), looks - count
  end
  return looks, before() > 0
end

-- Look at so many clocks, from the first one on in steps of 1 or -1: those that have a body, as text, and how long the last of them
-- will live, in ms.
local function look_around(bodies, first, step, count)
  local found, clock, longest_ms = {}, first, 0
  for number = 1, count do
    local text = string.format('%d', clock)
    local left_ms = redis.call('PTTL', bodies .. text)
    if left_ms ~= -2 then
      found[#found + 1] = text
      longest_ms = math.max(longest_ms, left_ms == -1 and 9007199254740991 or left_ms)
    end
    if number < count then clock = clock_ahead(clock, step) end
  end
  return found, longest_ms
end

-- One step of a scan of all keys for bodies, about `looks` of them. The scan's cursor, server and goal are kept in `index.scan`; a
-- cursor means nothing to another server process. At its end all that lives up to its goal is in the index. Returns the looks taken.
local function scan_bodies(meta, live, bodies, index, at, looks)
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  local cursor, started, goal = string.match(index.scan or '', '^(%d+) (%w+) (%-?%d+)$')
  if started ~= run then cursor, goal = '0', string.format('%d', at) end
  -- The server goes on to the end of a bucket, so it may look at some more than it is told.
  local page, found, longest_ms = redis.call('SCAN', cursor, 'MATCH', bodies .. '*', 'COUNT', looks - 100), {}, 0
  for _, key in ipairs(page[2]) do
    local text = string.sub(key, #bodies + 1)
    local clock = string.match(text, '^%-?%d+$') and tonumber(text)
    if clock and string.format('%d', clock) == text and not clock_after(clock, at) then
      local left_ms = redis.call('PTTL', key)
      found[#found + 1], longest_ms = text, math.max(longest_ms, left_ms == -1 and 9007199254740991 or left_ms)
    end
  end
  index_found(meta, live, found, longest_ms)
  if page[1] ~= '0' then
    index.scan = page[1] .. ' ' .. run .. ' ' .. goal
    return looks
  end
  index.scan, index.known = nil, 'all'
  if clock_after(tonumber(goal), index.upto) then index.upto = tonumber(goal) end
  return math.min(looks, redis.call('DBSIZE'))
end

-- Take up to `count` of the oldest out of the index whose message is gone, `old` being the first of them: if these are alive, so are
-- mostly the others.
local function drop_dead(live, bodies, old, clock, count)
  local keys, dead = {}, {}
  for at, text in ipairs(old) do keys[at] = bodies .. text end
  if #keys == 0 or redis.call('EXISTS', unpack(keys)) == #keys then return end
  for _, text in ipairs(oldest(live, clock, count)) do
    if redis.call('EXISTS', bodies .. text) == 0 then dead[#dead + 1] = text end
  end
  if #dead > 0 then redis.call('ZREM', live, unpack(dead)) end
end

-- Go on to the next living message of the index in (start, goal]: by what is known of when the dead ended, then one by one. Returns the
-- last clock before it, and how many looks are left.
local function pass_dead(meta, live, bodies, start, goal, looks, now_ms)
  local position, dead = skip_dead(meta, start, goal, now_ms), {}
  if position ~= start then
    -- They leave the index, but no more in one call than a look at each would have been.
    local passed = next_live(live, start, position, 1000)
    if #passed > 0 then redis.call('ZREM', live, unpack(passed)) end
  end
  if position == goal or looks == 0 then return position, looks end
  local page = next_live(live, position, goal, looks)
  if #page == 0 then return goal, looks end
  for _, clock in ipairs(page) do
    looks = looks - 1
    if redis.call('EXISTS', bodies .. clock) == 1 then break end
    dead[#dead + 1], position = clock, tonumber(clock)
  end
  if #dead > 0 then redis.call('ZREM', live, unpack(dead)) end
  return position, looks
end

-- The last clock in (position, goal] up to which all of the index has expired for sure, position where there is none.
local function skip_dead(meta, position, goal, now_ms)
  for at, ends_ms in string.gmatch(redis.call('HGET', meta, 'ends') or '', '(%S+) (%S+)') do
    local clock = tonumber(at)
    if tonumber(ends_ms) > now_ms or clock_after(clock, goal) then break end
    if clock_after(clock, position) then position = clock end
  end
  return position
end

-- Up to `most` living messages of the index in (own, goal], as clock and body, of about 1 MiB and at least one; those of the index
-- that have expired leave it. Returns them, and the clock up to which there are no others.
local function living(meta, live, bodies, own, goal, most, looks, now_ms)
  local items, bytes, position = {}, 0, own
  while position ~= goal and looks > 0 do
    -- Bodies may be large: a page is about what there is room for, going by those that have come.
    local count = #items / 2
    local room = count == 0 and 16 or math.ceil((1048576 - bytes) * count / bytes) + 1
    local page = next_live(live, position, goal, math.min(room, looks, most - count + 1))
    if #page == 0 then position = goal break end
    local keys, dead = {}, {}
    for at, clock in ipairs(page) do keys[at] = bodies .. clock end
    local full = false
    for at, body in ipairs(redis.call('MGET', unpack(keys))) do
      if not body then
        dead[#dead + 1] = page[at]
      elseif #items / 2 == most or #items > 0 and bytes + #body > 1048576 then
        full = true
        break
      else
        items[#items + 1], items[#items + 2], bytes = page[at], body, bytes + #body
      end
      position = tonumber(page[at])
    end
    if #dead > 0 then redis.call('ZREM', live, unpack(dead)) end
    if full then return items, #items > 0 and tonumber(items[#items - 1]) or own end
    looks = looks - #page
    if #dead == #page then position, looks = pass_dead(meta, live, bodies, position, goal, looks, now_ms) end
  end
  return items, position
end
