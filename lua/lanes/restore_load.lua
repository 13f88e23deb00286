#!lua
-- Begin to restore a backup of a queue into an empty one, or write some of its keys. Until restore_end.lua gives them back, `sweep` and
-- `seq` hold other types than they should: every script stops there before its first write (rule 1), so nobody claims, sweeps or
-- enqueues in a queue of which half is there. Repeating a call changes nothing; a restore that was interrupted is begun anew.
--
-- KEYS
--   sweep  string  restore, id of the backup, owner
--   seq    list    one word
--   stats  hash    counters
--   items  1 for each key: in `begin` one that must not be there, in `load` one to write
-- ARGV
--   now_ms  '' or the time of a test
--   prefix  prefix of the queue's keys
--   phase   begin | load
--   backup  id of the backup
--   owner   the process that restores it: the last one that has begun; those before write nothing any more
--   probe   begin: a value of the backup, to see whether this server reads them
--   items   2 for each key in `load`: the time (ms) when it expires, 0 = never; its value, '' = there is no such key
-- REPLY srv_us, ok | other (another process has begun since, or the restore has ended) | busy (with the name of a key that is there) |
--       unreadable (with the server's words)

settled(prefix)
local srv_us, mark = server_us(now_ms, sweep), 'restore ' .. backup .. ' ' .. owner
local held = redis.call('TYPE', sweep).ok == 'string' and redis.call('GET', sweep)
if phase == 'load' then
  if held ~= mark then return { srv_us, 'other', '' } end
  for at = 1, #KEYS - 3 do
    local expires_ms, value = ARGV[5 + 2 * at], ARGV[6 + 2 * at]
    if value == '' then
      redis.call('DEL', KEYS[3 + at])
    else
      redis.call('RESTORE', KEYS[3 + at], expires_ms, value, 'REPLACE', 'ABSTTL')
    end
  end
  return { srv_us, 'ok', '' }
end
if not held or string.sub(held, 1, 9 + #backup) ~= 'restore ' .. backup .. ' ' then
  if held then return { srv_us, 'busy', held } end
  if redis.call('HGET', stats, 'restored') == backup then return { srv_us, 'busy', 'restored' } end
  for at = 1, #KEYS do
    if redis.call('EXISTS', KEYS[at]) == 1 then return { srv_us, 'busy', KEYS[at] } end
  end
  if probe ~= '' then
    local read = redis.pcall('RESTORE', seq, 0, probe)
    if read.err then return { srv_us, 'unreadable', read.err } end
  end
end
redis.call('SET', sweep, mark)
redis.call('DEL', seq)
redis.call('RPUSH', seq, 'restore')
return { srv_us, 'ok', '' }
