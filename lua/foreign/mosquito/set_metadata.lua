#!lua flags=allow-oom
-- Set, add to or remove fields of the metadata that all jobs of one name share, once (rule 7). Foreign
-- clients do this with single commands.
--
-- KEYS
--   sweep     hash    state of the sweeps
--   metadata  hash    job_metadata:<name>
--   op        string  op:<op id>, record of this call: its reply
-- ARGV
--   now_ms        '' or the time of a test
--   not_after_ms  number: server time after which this call is void
--   items         3 for each item: set | add | remove, field, text or number
-- REPLY srv_us, done | repeated | refused, the new values of the fields that were added to
-- USES core/call: administered, check_types, recorded_words, server_us

check_types({}, { sweep, metadata }, {}, { op })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known, recorded_words(op) } end
for at = 3, #ARGV, 3 do
  local was = ARGV[at] == 'add' and redis.call('HGET', metadata, ARGV[at + 1]) or '0'
  if ARGV[at] == 'add' and not string.match(was, '^%-?%d+$') then
    return redis.error_reply('IRONCLAIM the field ' .. ARGV[at + 1] .. ' holds no number')
  end
end
local values = {}
for at = 3, #ARGV, 3 do
  local action, field, value = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if action == 'set' then redis.call('HSET', metadata, field, value)
  elseif action == 'add' then values[#values + 1] =
      string.format('%d', redis.call('HINCRBY', metadata, field, value))
  else redis.call('HDEL', metadata, field) end
end
redis.call('SET', op, table.concat(values, ' '), 'PXAT', not_after_ms + LATE_COPY_MS)
return { srv_us, 'done', values }
