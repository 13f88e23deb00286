-- Helpers for formats (members of a JSON object, times, packed fields), and the functions that a format has.
-- `wire(root, prefix, queue, layout, settings, now_ms)` returns a table of what they know in one call: the
-- format's keys, settings and time. Each function below takes it first; scripts call it `format`, formats
-- `w`. Its field `counts_rates` is true where a format counts claims in its own windows. `job` is the result
-- of `wire_read`. `redo` is true if an earlier call may have done a part of the work, so the function must
-- check before it adds. The loader refuses a format that lacks a function which is not optional; an optional
-- one that it lacks returns nil. A script gets only the functions that it uses.
--
-- HEAD of the scripts that name it: their first slots.
-- KEYS
--   sweep     hash    state of the sweeps
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of the engine's own keys
--   root      prefix of the foreign keys
--   queue     name of the queue
--   layout    layout of the keyspace, '' = the format has only one
--   settings  settings of the model
--
-- WIRE
--   wire_check             raise for keys of another type, before anything is written
--   wire_add               (item, due_ms) write a new job
--   wire_read              (id) the job as the engine sees it: kind, name, failures, body and more; nil where
--                          there is none
--   wire_place             (id) waiting, delayed, active, dead or done; nil where it is in no structure
--   wire_ended             (id) how a job ended that is in no structure any more
--   wire_candidates        (from, count, worker) waiting jobs in the order of claims, and the rank to go on
--                          from
--   wire_take              (id, job, place, lease) make it active
--   wire_mine              (id, token) true while the job is held by this lease on the wire
--   wire_done              (id, job, value, took_ms, redo) end it as finished
--   wire_again             (id, job, failure) schedule its next run
--   wire_bury              (id, job, failure) end it as dead
--   wire_drop              (id, job, outcome, error) end it with another outcome
--   wire_back              (id, job) move it back to the front of the waiting jobs
--   wire_due               (most) delayed jobs that are due
--   wire_promote           (id, redo) move a due one to the waiting jobs; false where there is no job with
--                          the id
--   wire_next_due_ms       the time (ms) at which the next one is due
--   wire_run_now           (id, job, redo) end the delay of a job
--   wire_requeue           (id, job, redo) let a dead job wait once more
--   wire_remove            (id, state) take a job away
--   wire_set_aside         (id, place, why) move a job that cannot be read out of the way
--   wire_strays            (most, ours) active jobs that no lease of this engine holds
--   wire_count             (state) how many jobs are in a state
--   wire_list              (state, offset, limit, newest_first, worker) a page of them, with their times; of
--                          the waiting ones those that the worker looks at, if one is given
--   wire_purge             (most) remove the keys that are left of the queue; true while there are more
--   wire_new_id            optional: (given) the id of a new job, made by the format where `given` is '';
--                          nil: `given` it is
--   wire_admit             optional: (item) the id of the job that makes this one a duplicate, or nil
--   wire_elsewhere         optional: (job, worker) true where its routing asks for another worker, and while
--                          it waits for other jobs
--   wire_refuses           optional: (job, id) true while no worker may run it, and why none ever will
--   wire_locked            optional: (id) true while a foreign worker holds it
--   wire_extend            optional: (id, lease) renew the lock of a lease on the wire
--   wire_pause             optional: (name, until_ms) pause the queue or a name
--   wire_paused            optional: (name) true while it is paused
--   wire_resume            optional: (name) end that
--   wire_unknown_parent    optional: (item) the first parent of a new job of which nothing is known
--   wire_obliterated       optional: () called when the queue was deleted
--   wire_noted             optional: (id, job, body) called when progress was recorded
--   wire_progress          optional: (id, percent) percent, message (JSON or nil) and time (ms; nil = not
--                          known) of the progress on the wire; nil where there is none, or no other than
--                          `percent`, which the engine noted last
--   wire_workers           optional: () the workers of foreign programs: name, heard_ms, ttl_ms and about
--                          (JSON), in a fixed order
--   wire_next_tick_ms      optional: (name) the next tick of a schedule on the wire; nil where that is not
--                          there, false if it was removed
--   wire_scanned           optional: () called when a claim has read its candidates
--   wire_due_at            optional: (id) the time (ms) at which a delayed job is due
--   wire_stuck             optional: (id) true for an active job that no worker holds
--   wire_of_another        optional: (id) true for a job in `done` that is of another queue
--   wire_beat              optional: (incarnation, about, ttl_ms, gone) a worker has sent a heartbeat, or has
--                          ended
--   wire_lead              optional: (incarnation, ttl_ms) a worker is the leader
--   wire_adopt_schedule    optional: (name) turn a foreign scheduler's schedule into a definition of the
--                          engine
--   wire_add_entry         optional: (page, name) add a schedule that only foreign schedulers know to a page
--   wire_schedule_names    optional: (offset, limit) a page of the names of all schedules, and how many there
--                          are
--   wire_due_schedules     optional: (most) schedules of foreign schedulers that are due
--   wire_settle_schedule   optional: (name) put a schedule into the format's own place
--   wire_scheduled         optional: (name, next_ms, given) a schedule was defined or moved
--   wire_may_tick          optional: (name, at_ms) false where a foreign scheduler has run this tick
--   wire_ticked            optional: (name, at_ms, next_ms, id) a tick has made a job
-- USES <format>: wire, wire_check, wire_elsewhere
--      core/call: server_us

-- What `wire` returns, once the types of the format's keys have been looked at (rule 1).
local function format_of(root, prefix, queue, layout, settings, now_ms)
  local format = wire(root, prefix, queue, layout, settings, now_ms)
  wire_check(format)
  return format
end

-- The server's time in us, and what `wire` returns at that time.
local function unchecked_now(given_ms, sweep, root, prefix, queue, layout, settings)
  local srv_us = server_us(given_ms, sweep)
  return srv_us, wire(root, prefix, queue, layout, settings, math.floor(srv_us / 1000))
end

-- The same, once the types of the format's keys have been looked at.
local function format_now(...)
  local srv_us, format = unchecked_now(...)
  wire_check(format)
  return srv_us, format
end

-- Raise where one of these keys is no set, as check_types does for other types.
local function check_sets(...)
  for _, key in ipairs({ ... }) do
    local found = redis.pcall('SCARD', key)
    if type(found) == 'table' then
      if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then error(found) end
      error({ err = 'WRONGTYPE the key ' .. key .. ' is a ' .. redis.call('TYPE', key).ok
        .. ', it must be a set' })
    end
  end
end

-- The fields of a packed string (engine/models/foreign/foreign.py): for each a length (4 bytes, big-endian)
-- and its bytes.
local function unpack_fields(packed)
  local found, at = {}, 1
  while at <= #packed do
    found[#found + 1], at = struct.unpack('>I4c0', packed, at)
  end
  return found
end

-- The attributes of a worker from their packed fields: server, stack, region, capabilities and routes, those
-- two with spaces between.
-- `priorities`: nil, or the least and the greatest priority of the jobs that it takes.
local function unpack_worker(packed, priorities)
  local parts, capabilities, routes = unpack_fields(packed), {}, {}
  for word in string.gmatch(parts[4], '%S+') do capabilities[word] = true end
  for word in string.gmatch(parts[5], '%S+') do routes[#routes + 1] = word end
  return { server = parts[1], stack = parts[2], region = parts[3], capabilities = capabilities,
    routes = routes, priorities = priorities }
end

-- Whether a worker leaves a job to others, because of its priority or its routing.
local function not_for(job, worker, format)
  local range = worker.priorities
  return range and job.priority and (job.priority < range[1] or job.priority > range[2])
    or wire_elsewhere(format, job, worker)
end

-- A page of the ids of several lists, one after the other, each from its right end. With `from_left` the last
-- list comes first, and each from its left end.
local function page_of_lists(lists, offset, limit, from_left)
  local ids = {}
  for at = 1, #lists do
    local list = lists[from_left and #lists + 1 - at or at]
    local size, left = redis.call('LLEN', list), limit - #ids
    if left > 0 and offset < size then
      local found = from_left and redis.call('LRANGE', list, offset, offset + left - 1)
        or redis.call('LRANGE', list, -offset - left, -offset - 1)
      for place = 1, #found do ids[#ids + 1] = found[from_left and place or #found + 1 - place] end
    end
    offset = math.max(0, offset - size)
  end
  return ids
end

-- A time in ms since 1970 as UTC text: 2026-11-22T03:14:19.123Z, and with `whole` without the fraction.
local function rfc3339(ms, whole)
  local seconds = math.floor(ms / 1000)
  local days, rest = math.floor(seconds / 86400), seconds % 86400
  -- Days since 1970 as a date, in eras of 400 years that begin with March: leap days then come last.
  local shifted = days + 719468
  local era = math.floor(shifted / 146097)
  local day_of_era = shifted - era * 146097
  local year =
    math.floor((day_of_era - math.floor(day_of_era / 1460) + math.floor(day_of_era / 36524)
      - math.floor(day_of_era / 146096)) / 365)
  local day_of_year = day_of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * day_of_year + 2) / 153)
  local day = day_of_year - math.floor((153 * month + 2) / 5) + 1
  month = month < 10 and month + 3 or month - 9
  year = year + era * 400 + (month <= 2 and 1 or 0)
  local text = string.format('%04d-%02d-%02dT%02d:%02d:%02d', year, month, day, math.floor(rest / 3600),
    math.floor(rest / 60) % 60, rest % 60)
  return text .. (whole and '' or string.format('.%03d', ms % 1000)) .. 'Z'
end

-- Where the string that begins at `at` of a JSON text ends, nil where it does not.
local function json_string_end(text, at)
  at = at + 1
  while true do
    local found = string.find(text, '["\\]', at)
    if not found then return nil end
    if string.byte(text, found) == 34 then return found end
    at = found + 2
  end
end

-- Where the value that begins at `at` ends, nil where none does. What is inside of it is not checked.
local function json_value_end(text, at)
  local head = string.sub(text, at, at)
  if head == '"' then return json_string_end(text, at) end
  if head ~= '{' and head ~= '[' then
    local scalar = string.match(text, '^[%-%+%.%w]+', at)
    local known = scalar and (scalar == 'true' or scalar == 'false' or scalar == 'null' or tonumber(scalar))
    return known and at + #scalar - 1 or nil
  end
  local depth, place = 0, at
  while true do
    place = string.find(text, '[%[%]{}"]', place)
    if not place then return nil end
    local mark = string.byte(text, place)
    if mark == 34 then
      place = json_string_end(text, place)
      if not place then return nil end
    elseif mark == 123 or mark == 91 then
      depth = depth + 1
    else
      depth = depth - 1
      if depth == 0 then return place end
    end
    place = place + 1
  end
end

-- The top-level members of a JSON object's text, without decoding it: unchanged members keep their bytes, so
-- numbers keep their spelling and payloads every byte. nil for text that is no object. Their `list` is in the
-- order of the text: where each begins, and its value from its first to its last byte. `named` has each by
-- its name, of two with one name the last. `raw` is the text that takes the value's place, false to remove
-- it.
local function json_members(text)
  local at = type(text) == 'string' and string.match(text, '^%s*{%s*()')
  if not at then return nil end
  local members = { text = text, list = {}, named = {} }
  local closed = string.match(text, '^}%s*$', at)
  while not closed do
    local name_end = string.sub(text, at, at) == '"' and json_string_end(text, at)
    local first = name_end and string.match(text, '^%s*:%s*()', name_end + 1)
    local last = first and json_value_end(text, first)
    if not last then return nil end
    local name = string.sub(text, at + 1, name_end - 1)
    -- Few names contain escapes, so decoding is rarely needed.
    if string.find(name, '[%c\\]') then
      local read, decoded = pcall(cjson.decode, '["' .. name .. '"]')
      if not read then return nil end
      name = decoded[1]
    end
    local member = { begins = at, first = first, last = last }
    members.list[#members.list + 1], members.named[name] = member, member
    closed = string.match(text, '^%s*}%s*$', last + 1)
    at = closed or string.match(text, '^%s*,%s*()', last + 1)
    if not at then return nil end
  end
  return members
end

-- The text of a value, nil where there is none.
local function json_raw(members, name)
  local member = members.named[name]
  return member and (member.raw or string.sub(members.text, member.first, member.last))
end

-- A text, number or boolean; nil for null, for objects and lists, and where there is none.
local function json_value(members, name)
  local raw = json_raw(members, name) or 'null'
  if string.find(raw, '^"[^%c\\]*"$') then return string.sub(raw, 2, -2) end
  if string.find(raw, '^%-?%d+$') and #raw < 16 then return tonumber(raw) end
  local read, value = pcall(cjson.decode, '[' .. raw .. ']')
  value = read and value[1]
  if value == cjson.null or type(value) == 'table' or not read then return nil end
  return value
end

-- Put the text `raw` in the place of a value. A new member comes behind the one named `after`, before all
-- others where that is false, and behind all where it is not given.
local function json_set(members, name, raw, after)
  local member, list = members.named[name], members.list
  if member then
    member.raw = raw
    return
  end
  member = { name = name, raw = raw }
  local place = after == false and 1 or #list + 1
  for at, other in ipairs(after and list or {}) do
    if other == members.named[after] then place = at + 1 end
  end
  table.insert(list, place, member)
  members.named[name] = member
end

-- The object with its changes.
local function json_text(members)
  local text, at, some = members.text, string.find(members.text, '{', 1, true) + 1, false
  local parts = { string.sub(text, 1, at - 1) }
  for _, member in ipairs(members.list) do
    if not member.first then
      parts[#parts + 1] = (some and ',' or '') .. cjson.encode(member.name) .. ':' .. member.raw
      some = true
    else
      local before = string.sub(text, at, member.begins - 1)
      local comma = string.find(before, ',', 1, true)
      at = member.last + 1
      if member.raw ~= false then
        parts[#parts + 1] = (some and not comma and ',' or '') .. before
          .. string.sub(text, member.begins, member.first - 1)
          .. (member.raw or string.sub(text, member.first, member.last))
        some = true
      elseif not comma then
        -- The first one is removed with the comma behind it, others with the one before them.
        parts[#parts + 1], at = before, string.match(text, '^%s*,%s*()', at) or at
      end
    end
  end
  parts[#parts + 1] = string.sub(text, at)
  return table.concat(parts)
end
