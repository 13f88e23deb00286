#!lua flags=no-writes
-- The details of jobs. Stops after 1 MiB of bodies: the reply may have fewer items than the call asks for,
-- but at least one.
--
-- HEAD foreign/format
-- KEYS
--   active  zset    id by lease deadline (ms)
--   items   1 for each item: run:<id>
-- ARGV
--   whole     1 = with the body and the fields of `run`
--   items     1 for each item: id
-- REPLY srv_us, for each item: state, fence, time (ms: due, end of the lease, death or finish; 0 = none),
--       body, fields of `run`
-- USES <format>: wire_due_at, wire_ended, wire_locked, wire_read, wire_stuck
--      core/call: check_types
--      foreign/claim: own_number, own_words
--      foreign/format: format_now
--      foreign/looks: place_of

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ active }, {}, {})

local reply, bytes = { srv_us }, 0
for at = 1, #KEYS - 2 do
  local id, run = ARGV[7 + at], KEYS[2 + at]
  local state, fence = place_of(run, id, format)
  local job, over = wire_read(format, id), nil
  local at_ms
  -- In no structure of the format and not held by any worker: without a lease time it is shown as stuck.
  if state == 'gone' and wire_stuck(format, id) then state = 'active' end
  if state == 'active' then
    at_ms = tonumber(redis.call('ZSCORE', active, id) or 0)
    -- A foreign client holds it, for as long as its lock lasts.
    if at_ms == 0 and wire_locked(format, id) then at_ms = now_ms + 1 end
  elseif state == 'delayed' then
    at_ms = wire_due_at(format, id) or job and job.due_ms or 0
  else
    over = wire_ended(format, id)
    at_ms = over and over.ended_ms or 0
    if at_ms == 0 and state ~= 'waiting' then at_ms = own_number(own_words(run, 'ended_ms')[1]) end
  end
  local body, words = '', {}
  if whole == '1' then
    body = job and job.body or ''
    for _, part in ipairs(type(body) == 'table' and body or { body }) do bytes = bytes + #part end
    if bytes > REPLY_BYTES and at > 1 then break end
    words = redis.pcall('HGETALL', run)
    -- A run that cannot be read must not hide the others.
    if words.err then words = { 'error', 'the key ' .. run .. ' cannot be read' } end
    -- The wire counts all failures, also those of foreign clients.
    if job and job.kind == 'J' then
      words[#words + 1], words[#words + 2] = 'failures', string.format('%d', job.failures or 0)
    end
    if over and over.error and own_words(run, 'error')[1] == false then
      words[#words + 1], words[#words + 2] = 'error', over.error
    end
  end
  reply[#reply + 1] = { state, fence or 0, math.floor(at_ms or 0), body, words }
end
return reply
