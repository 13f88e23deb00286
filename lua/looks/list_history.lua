#!lua flags=no-writes
-- How jobs have ended, the latest first: one part of the entries, of those that are meant.
--
-- HEAD core/call
-- KEYS
--   stats    hash  counters, and the setting of the history
--   history  zset  how jobs have ended, by time (ms)
-- ARGV
--   newer_than_ms  number: they ended less than so long ago; 0 = at any time
--   older_than_ms  number: and at least so long ago
--   until_ms       number: and at this time at the latest
--   offset         number: entries of that time to pass by
--   limit          number: most entries to read
--   key            id, key or unique key of the jobs that are meant; '' = any
--   name           their name; '' = any
--   outcome        how they have ended; '' = any
-- REPLY srv_us, the setting ('' = none), how many entries were read, the time of the last one, how many of
--       those were of that time, for each entry that is meant: entry, time
-- USES core/call: check_types, server_us
--      core/history: history_rule

check_types({ history }, { sweep, stats }, {})
local srv_us, setting = server_us(now_ms, sweep), redis.call('HGET', stats, 'history') or ''
local age_ms, since_ms, server_ms = history_rule(setting).age_ms, 0, math.floor(srv_us / 1000)
if newer_than_ms > 0 then since_ms = server_ms - newer_than_ms + 1 end
if older_than_ms > 0 then until_ms = math.min(until_ms, server_ms - older_than_ms) end
-- What is too old is not shown, even if no sweep has removed it yet.
if age_ms > 0 then since_ms = math.max(since_ms, server_ms - age_ms) end
local page = redis.call('ZRANGE', history, string.format('%d', until_ms), string.format('%d', since_ms),
  'BYSCORE', 'REV', 'LIMIT', offset, limit, 'WITHSCORES')
local found, bytes, read, last, same = {}, 0, 0, '', 0
for at = 1, #page, 2 do
  if bytes > REPLY_BYTES then break end
  local entry, at_ms = page[at], page[at + 1]
  read, last, same = read + 1, at_ms, at_ms == last and same + 1 or 1
  local id, _, ended, of_name, of_key, unique =
    string.match(entry, '^(%Z*)%z(%Z*)%z(%Z*)%z(%Z*)%z(%Z*)%z(%Z*)%z')
  if (key == '' or key == id or key == of_key or key == unique) and (name == '' or name == of_name)
      and (outcome == '' or outcome == ended) then
    found[#found + 1], found[#found + 2] = entry, at_ms
    bytes = bytes + #entry
  end
end
return { srv_us, setting, read, last, same, found }
