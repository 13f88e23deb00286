-- The circle of clocks, the state that these scripts keep of a channel's clock, the time, and the expiry of
-- keys.

-- A clock from its decimal digits in a key, nil for none. Raises for any other text, because its meaning is
-- unknown.
local function clock_of(text, key)
  if not text then return nil end
  local clock = tonumber(text)
  if not string.match(text, '^%-?%d+$') or clock > EXACT_MAX or clock < -EXACT_MAX then
    error({ err = 'IRONCLAIM no clock from -(2^53 - 1) to 2^53 - 1 in ' .. key .. ': '
      .. string.sub(text, 1, 40) })
  end
  return clock
end

-- Whether `clock` is later than `other`, on the circle of whole numbers from -(2^53 - 1) to 2^53 - 1. Lua
-- compares clocks only here. One clock is later than another if less than half of the circle leads to it.
-- Nothing here leaves the range in which doubles are exact. The same in Python: engine/models/dsps.py.
local function clock_after(clock, other)
  -- anchor: clocks-are-compared-on-the-circle, 2 lines
  if clock > other then return other >= 0 or clock <= 0 or clock <= EXACT_MAX + other end
  return clock < other and clock < 0 and other > 0 and other > EXACT_MAX + clock
end

-- The clock that comes `steps` after this one, before it where that is negative: at most 2^53 - 1 of them.
local function clock_ahead(clock, steps)
  if steps > 0 and clock > EXACT_MAX - steps then return (clock - EXACT_MAX) + (steps - EXACT_MAX) - 1 end
  if steps < 0 and clock < -EXACT_MAX - steps then return (clock + EXACT_MAX) + (steps + EXACT_MAX) + 1 end
  return clock + steps
end

-- How many steps lead forward from one clock to a later one: at most 2^53 - 1.
local function clock_steps(from, to)
  if to >= from then return to - from end
  return (EXACT_MAX - from) + (to + EXACT_MAX) + 1
end

-- Rule 1: a key of the wrong type must stop the script before its first write. `found` is the reply of a
-- pcall. The error names the key and both types; any other error is raised as the server returned it.
local function expect_type(key, wanted, found)
  if type(found) ~= 'table' or not found.err then return found end
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then error(found) end
  error({ err = 'WRONGTYPE the key ' .. key .. ' is a ' .. redis.call('TYPE', key).ok .. ', it must be a '
    .. wanted })
end

-- Restart the index at this clock, because nothing is known of the channel or the clock went back. Living
-- messages at or before it are searched for when a subscriber needs them.
local function begin_anew(meta, clock, era)
  redis.call('HSET', meta, 'last', clock, 'upto', clock, 'known', clock, 'era', string.format('%d', era))
  redis.call('HDEL', meta, 'scan', 'ends')
end

-- The values of the clock and other strings, false for none; refused while the slot migrates between two
-- nodes (rules 1 and 27). Then both nodes refuse a command with several keys of which one is missing, and one
-- of these always is. After this check the script sees all bodies, which are not in KEYS. Nothing was written
-- yet, so the call is simply sent again.
local function settled_clock(bodies, keys)
  local found, absent = redis.pcall('MGET', bodies .. 'absent', unpack(keys)), {}
  if found.err then error({ err = 'TRYAGAIN the slot of the channel is on the move' }) end
  table.remove(found, 1)
  for at, key in ipairs(keys) do
    if not found[at] then absent[#absent + 1] = key end
  end
  -- A key of another type reads as missing, too.
  if #absent > 0 and redis.call('EXISTS', unpack(absent)) > 0 then
    for _, key in ipairs(absent) do expect_type(key, 'string', redis.pcall('GET', key)) end
  end
  return found
end

-- The current clock of a channel, nil for none. If a later clock was seen (`last` by these scripts, `seen` by
-- the caller), the stored one has gone back. The channel goes on from the later one. Returns the clock,
-- and whether it has gone back.
local function reckon(clock, last, seen)
  local highest = last or seen
  if last and seen and clock_after(seen, last) then highest = seen end
  if highest and (not clock or clock_after(highest, clock)) then return highest, true end
  return clock, false
end

-- Write the changed ones of these fields of a hash, `now` by name; delete those that have no value any more.
local function note_changes(hash, fields, kept, now)
  local words, gone = {}, {}
  for at, field in ipairs(fields) do
    if not now[field] then
      if kept[at] then gone[#gone + 1] = field end
    elseif now[field] ~= kept[at] then
      words[#words + 1], words[#words + 2] = field, now[field]
    end
  end
  if #words > 0 then redis.call('HSET', hash, unpack(words)) end
  if #gone > 0 then redis.call('HDEL', hash, unpack(gone)) end
end

-- Delete the eras of expired subscribers. Each new subscriber checks a few, so there are never many more of
-- them than of living subscribers. `cursors`: the prefix before `r.<subscriber>` in the keys of cursors.
local function forget_expired(meta, cursors)
  for _, field in ipairs(redis.call('HRANDFIELD', meta, 5)) do
    if string.sub(field, 1, 2) == 'r.' and redis.call('EXISTS', cursors .. field) == 0 then
      redis.call('HDEL', meta, field)
    end
  end
end

-- The script's one clock: microseconds of the server.
local function server_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Let keys live until this time. The state of a channel expires with its clock, so that the end of one is not
-- taken for a loss of the other.
local function renew(ends_ms, ...)
  for at = 1, select('#', ...) do redis.call('PEXPIREAT', (select(at, ...)), ends_ms) end
end

-- The expiry for keys that other callers use as well: the one that this call asks for, or a later one that
-- another service has set, because its messages and cursors must not outlive the clock. Services may use
-- different lifetimes for one channel.
local function lasting(ends_ms, ...)
  for at = 1, select('#', ...) do
    ends_ms = math.max(ends_ms, redis.call('PEXPIRETIME', (select(at, ...))))
  end
  return string.format('%d', ends_ms)
end

-- Called before messages enter the index: no message in the index lives longer than `longest_ms` from now. If
-- foreign messages come in between others (`among`), the marks in `ends` do not hold any more and are
-- deleted.
local function note_longest(meta, longest_ms, among)
  if tonumber(redis.call('HGET', meta, 'longest_ms') or 0) < longest_ms then
    redis.call('HSET', meta, 'longest_ms', string.format('%d', longest_ms))
  end
  if among then redis.call('HDEL', meta, 'ends') end
end

-- Called every 256 messages: record that all of the index up to this clock will have expired by this time, so
-- that a fetch can skip it. When there are 512 such marks, every other one is deleted.
local function note_ends(meta, clock, ends_ms)
  local marks, before_ms = {}, 0
  for at, then_ms in string.gmatch(redis.call('HGET', meta, 'ends') or '', '(%S+) (%S+)') do
    marks[#marks + 1], before_ms = at .. ' ' .. then_ms, tonumber(then_ms)
  end
  if #marks >= 512 then
    for at = 1, 256 do marks[at] = marks[2 * at] end
    for at = #marks, 257, -1 do marks[at] = nil end
  end
  marks[#marks + 1] = string.format('%d %d', clock, math.max(before_ms, ends_ms))
  redis.call('HSET', meta, 'ends', table.concat(marks, ' '))
end

-- The id in the message that is stored under a clock, given as text; nil where there is no message of this
-- format.
local function id_under(bodies, text)
  -- An id has at most 63 characters, none of which JSON escapes.
  return string.match(redis.call('GETRANGE', bodies .. text, 0, 99), '^{"id":"([^"]+)","content":')
end

-- The clock after which no message is stored that these scripts have published. After a call that was cut off
-- before it wrote the clock, some are: those whose id leads to them. A body whose id does not was the last
-- write of that call, and is written again.
local function behind_unfinished(bodies, mids, clock)
  while true do
    local after = clock_ahead(clock, 1)
    local text = string.format('%d', after)
    local id = id_under(bodies, text)
    if not id or redis.call('GET', mids .. id) ~= text then return clock end
    clock = after
  end
end
