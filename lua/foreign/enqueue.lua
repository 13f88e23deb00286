#!lua
-- Enqueue jobs into the structures of a foreign format, atomically and in the order of the items. An id that
-- is there already, or a unique job, makes an item a duplicate (rule 3). The nonce identifies the call:
-- repeating it changes nothing.
--
-- HEAD foreign/format
-- KEYS
--   stats    hash    counters
--   new      string  new:<nonce>, the jobs of this call
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   items         3 for each item: id ('' = the server gives one), delay_ms (0 = claimable at once; below 0
--                 the time itself, which may have passed), packed fields
-- REPLY srv_us, for each item: c (created) | r (repeated) | d (duplicate) | o (orphan) | x (refused), its id,
--       and of a duplicate state, fence and id of the existing job, of an orphan the parent of which nothing
--       is known as that id
-- USES <format>: wire_add, wire_admit, wire_new_id, wire_place, wire_read, wire_unknown_parent
--      core/call: check_types
--      core/wake: append_events, wake_push
--      foreign/ends: foreign_due_sooner, foreign_next_due_ms, foreign_over
--      foreign/format: format_now, unpack_fields
--      foreign/ids: record_of, recorded
--      foreign/looks: foreign_state

local wake = prefix .. 'wake'
check_types({}, { sweep, stats }, { wake }, { new })
local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
local count, items, reply = (#ARGV - 7) / 3, {}, {}
-- What the record of a call says of each of its jobs: added, a duplicate of another, or refused because a
-- parent is unknown.
local letters, signs = { ['+'] = 'r', ['-'] = 'd', ['!'] = 'o' }, { d = '-', o = '!' }
local record = redis.call('GET', new) -- anchor: foreign-enqueue-is-recognized-when-repeated
local done, known = false, {}
for word in string.gmatch(record or '', '%S+') do
  if word == 'd' then done = true elseif word ~= 'w' then known[#known + 1] = word end
end
local function add_reply(at, letter, id, holder)
  local state, fence = '', 0
  if letter == 'd' then state, fence = foreign_state(prefix, format, holder) end
  for _, word in ipairs({ letter, id, state, fence, holder or '' }) do reply[#reply + 1] = word end
end

local fresh = false
for at = 1, count do
  local given, wait_ms, packed = ARGV[5 + 3 * at], tonumber(ARGV[6 + 3 * at]), ARGV[7 + 3 * at]
  local item = { given = given, wait_ms = wait_ms, fields = unpack_fields(packed) }
  item.body = item.fields[1]
  local sign, id, holder = string.match(known[at] or '', '^([!+-])([^=]*)=?(.*)$')
  if sign then
    item.id, item.letter, item.holder = recorded(id), letters[sign], sign ~= '+' and recorded(holder) or nil
    -- An earlier copy was cut off: a job that it has not added yet is added now.
    item.missing = sign == '+' and not done and not wire_place(format, id)
      and not foreign_over(prefix, id, now_ms)
  else
    item.id = given
    if given ~= '' and (wire_read(format, given) or foreign_over(prefix, given, now_ms)) then
      item.letter, item.holder = 'd', given
      -- This is recorded, too: a late copy is told the same when the other job is not known any more.
      fresh = fresh or now_ms <= not_after_ms
    elseif now_ms > not_after_ms then -- anchor: late-foreign-enqueue-is-void
      item.letter = 'x'
    else
      item.letter, item.missing, fresh = 'c', true, true
    end
  end
  items[at] = item
end
if fresh or (record and not done) then
  local words, events = { 'w' }, redis.call('HGET', stats, 'events')
  events = events and { keep = events }
  local function note(mark)
    words = { mark }
    for at, item in ipairs(items) do
      words[at + 1] = (signs[item.letter] or '+') .. record_of({ item.id })
        .. (item.holder and '=' .. record_of({ item.holder }) or '')
    end
    redis.call('SET', new, table.concat(words, ' '), 'PXAT', string.format('%d', not_after_ms + LATE_COPY_MS))
  end
  for _, item in ipairs(items) do
    if item.letter == 'c' then
      item.id = wire_new_id(format, item.given) or item.given
      local parent = wire_unknown_parent(format, item)
      local holder = not parent and wire_admit(format, item)
      if parent then
        item.letter, item.holder, item.missing = 'o', parent, false
      elseif holder and holder ~= item.id then
        item.letter, item.holder, item.missing = 'd', holder, false
      end
    end
  end
  local adds = false
  for _, item in ipairs(items) do adds = adds or item.missing end
  -- Before the jobs: if the call is cut off after any write, the next copy knows their ids and adds those
  -- that are missing.
  if adds then note('w') end
  local wakes, before_ms = false, nil
  for at, item in ipairs(items) do
    local holder = item.missing and at > 1 and wire_admit(format, item)
    if holder and holder ~= item.id then
      item.letter, item.holder = 'd', holder
    elseif item.missing then
      local due_ms = item.wait_ms > 0 and now_ms + item.wait_ms or -item.wait_ms
      if due_ms <= now_ms then wakes = true else before_ms = before_ms or foreign_next_due_ms(format) end
      wire_add(format, item, due_ms)
      if events then
        local job = wire_read(format, item.id)
        events[#events + 1] = { 'created', item.id, job and job.name or '',
          due_ms > now_ms and 'delayed' or 'waiting' }
      end
    end
  end
  note('d')
  if wakes or before_ms and foreign_due_sooner(format, before_ms) then wake_push(wake) end
  if events then append_events(prefix .. 'events', events) end
end
for at, item in ipairs(items) do add_reply(at, item.letter, item.id, item.holder) end
return { srv_us, reply }
