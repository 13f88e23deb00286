-- The index of living messages, and the search for those of foreign clients.
-- USES dsps/clock: clock_after, clock_ahead, clock_steps, expect_type, note_longest

-- The next clocks of the index in (position, goal] on the circle, as text. At the wrap of the circle, the
-- reply ends before it.
local function next_live(live, position, goal, count)
  local after = string.format('(%d', position)
  if position < goal then
    return redis.call('ZRANGE', live, after, string.format('%d', goal), 'BYSCORE', 'LIMIT', 0, count)
  end
  local found = redis.call('ZRANGE', live, after, '+inf', 'BYSCORE', 'LIMIT', 0, count)
  if #found > 0 then return found end -- anchor: the-index-goes-on-behind-the-wrap
  return redis.call('ZRANGE', live, '-inf', string.format('%d', goal), 'BYSCORE', 'LIMIT', 0, count)
end

-- The first clocks of the index, as text: those before the wrap of the circle come first.
local function oldest(live, clock, count)
  if clock < 0 then
    local before = expect_type(live, 'zset', redis.pcall('ZRANGE', live, 1, '+inf', 'BYSCORE', 'LIMIT', 0,
      count))
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

-- Put clocks that were found to have a message into the index. `longest_ms`: how long the one that lives
-- longest will live.
local function index_found(meta, live, found, longest_ms)
  if #found == 0 then return end
  note_longest(meta, longest_ms, true)
  index_all(live, found)
end

-- Find more of the living messages that the index lacks, for a subscriber whose cursor is `own`, in a channel
-- whose clock is `at`. The index then records how far the search has come. Returns how many reads this call
-- has left, and whether messages right after the cursor are still unknown, so that none may be delivered yet.
local function index_more(meta, live, bodies, index, own, at)
  local steps, reads = clock_steps, 1000
  local function before()
    return index.known ~= 'all' and clock_after(index.known, own) and steps(own, index.known) or 0
  end
  if before() == 0 and index.upto == at then return reads, false end
  local most = math.max(before(), steps(index.upto, at))
  if index.scan or most > reads and most > redis.call('DBSIZE') then
    -- Keep half of the reads for messages that are known already, if there may be some.
    reads = reads - scan_bodies(meta, live, bodies, index, at, before() > 0 and reads or reads / 2)
    if index.scan then return reads, before() > 0 end
  end
  local count = math.min(before(), reads)
  if count > 0 then
    index_found(meta, live, look_around(bodies, index.known, -1, count))
    index.known, reads = clock_ahead(index.known, -count), reads - count
  end
  count = math.min(steps(index.upto, at), reads - 500)
  if count > 0 then
    index_found(meta, live, look_around(bodies, clock_ahead(index.upto, 1), 1, count))
    index.upto, reads = clock_ahead(index.upto, count), reads - count
  end
  return reads, before() > 0
end

-- Read `count` clocks, from `first` on in steps of 1 or -1. Returns those that have a body, as text, and how
-- long the one that lives longest will live, in ms.
local function look_around(bodies, first, step, count)
  local found, clock, longest_ms = {}, first, 0
  for number = 1, count do
    local text = string.format('%d', clock)
    local left_ms = redis.call('PTTL', bodies .. text)
    if left_ms ~= -2 then
      found[#found + 1] = text
      longest_ms = math.max(longest_ms, left_ms == -1 and EXACT_MAX or left_ms)
    end
    if number < count then clock = clock_ahead(clock, step) end
  end
  return found, longest_ms
end

-- One step of a SCAN of all keys for bodies, about `reads` keys. The scan's cursor, server and goal are kept
-- in `index.scan`; a cursor is invalid on another server process. At the end of the scan all living messages
-- up to its goal are in the index. Returns the reads used.
local function scan_bodies(meta, live, bodies, index, at, reads)
  local server = redis.pcall('INFO', 'server')
  -- Without it nobody could say whether the cursor is of this process: going on with it could pass messages
  -- by.
  if type(server) == 'table' then
    error({ err = 'NOPERM the search of the whole keyspace for messages needs the command INFO' })
  end
  local run = string.match(server, 'run_id:(%w+)')
  local cursor, started, goal = string.match(index.scan or '', '^(%d+) (%w+) (%-?%d+)$')
  if started ~= run then cursor, goal = '0', string.format('%d', at) end
  -- The server finishes a bucket, so it may read somewhat more than COUNT.
  local page, found, longest_ms = redis.call('SCAN', cursor, 'MATCH', bodies .. '*', 'COUNT', reads - 100),
    {}, 0
  for _, key in ipairs(page[2]) do
    local text = string.sub(key, #bodies + 1)
    local clock = string.match(text, '^%-?%d+$') and tonumber(text)
    if clock and string.format('%d', clock) == text and not clock_after(clock, at) then
      local left_ms = redis.call('PTTL', key)
      found[#found + 1], longest_ms = text, math.max(longest_ms, left_ms == -1 and EXACT_MAX or left_ms)
    end
  end
  index_found(meta, live, found, longest_ms)
  if page[1] ~= '0' then
    index.scan = page[1] .. ' ' .. run .. ' ' .. goal
    return reads
  end
  index.scan, index.known = nil, 'all'
  if clock_after(tonumber(goal), index.upto) then index.upto = tonumber(goal) end
  return math.min(reads, redis.call('DBSIZE'))
end

-- Remove up to `count` of the oldest entries of the index whose message has expired. `old` holds the first
-- few of them: if these are all alive, most others are as well, and nothing is done.
local function drop_dead(live, bodies, old, clock, count)
  local keys, dead = {}, {}
  for at, text in ipairs(old) do keys[at] = bodies .. text end
  if #keys == 0 or redis.call('EXISTS', unpack(keys)) == #keys then return end
  for _, text in ipairs(oldest(live, clock, count)) do
    if redis.call('EXISTS', bodies .. text) == 0 then dead[#dead + 1] = text end
  end
  if #dead > 0 then redis.call('ZREM', live, unpack(dead)) end
end

-- Go on to the next living message of the index in (start, goal]: first by the recorded ends (skip_dead),
-- then one by one.
-- Returns the last clock before it, and how many reads are left.
local function pass_dead(meta, live, bodies, start, goal, reads, now_ms)
  local position, dead = skip_dead(meta, start, goal, now_ms), {}
  if position ~= start then
    -- They are removed from the index, at most 1,000 in one call, as many as it could read.
    local passed = next_live(live, start, position, 1000)
    if #passed > 0 then redis.call('ZREM', live, unpack(passed)) end
  end
  if position == goal or reads == 0 then return position, reads end
  local page = next_live(live, position, goal, reads)
  if #page == 0 then return goal, reads end
  for _, clock in ipairs(page) do
    reads = reads - 1
    if redis.call('EXISTS', bodies .. clock) == 1 then break end
    dead[#dead + 1], position = clock, tonumber(clock)
  end
  if #dead > 0 then redis.call('ZREM', live, unpack(dead)) end
  return position, reads
end

-- The last clock in (position, goal] up to which all of the index has certainly expired; `position` where
-- there is none.
local function skip_dead(meta, position, goal, now_ms)
  for at, ends_ms in string.gmatch(redis.call('HGET', meta, 'ends') or '', '(%S+) (%S+)') do
    local clock = tonumber(at)
    if tonumber(ends_ms) > now_ms or clock_after(clock, goal) then break end
    if clock_after(clock, position) then position = clock end
  end
  return position
end

-- Up to `most` living messages of the index in (own, goal], as clock and body, about 1 MiB in total but at
-- least one. Expired entries are removed from the index. Returns them, and the clock up to which there are no
-- others.
local function living(meta, live, bodies, own, goal, most, reads, now_ms)
  local items, bytes, position = {}, 0, own
  while position ~= goal and reads > 0 do
    -- Bodies may be large: the size of a page is estimated from the bodies read so far.
    local count = #items / 2
    local room = count == 0 and 16 or math.ceil((REPLY_BYTES - bytes) * count / bytes) + 1
    local page = next_live(live, position, goal, math.min(room, reads, most - count + 1))
    if #page == 0 then position = goal break end
    local keys, dead = {}, {}
    for at, clock in ipairs(page) do keys[at] = bodies .. clock end
    local full = false
    for at, body in ipairs(redis.call('MGET', unpack(keys))) do
      if not body then
        dead[#dead + 1] = page[at]
      elseif #items / 2 == most or #items > 0 and bytes + #body > REPLY_BYTES then
        full = true
        break
      else
        items[#items + 1], items[#items + 2], bytes = page[at], body, bytes + #body
      end
      position = tonumber(page[at])
    end
    if #dead > 0 then redis.call('ZREM', live, unpack(dead)) end
    if full then return items, #items > 0 and tonumber(items[#items - 1]) or own end
    reads = reads - #page
    if #dead == #page then position, reads = pass_dead(meta, live, bodies, position, goal, reads, now_ms) end
  end
  return items, position
end
