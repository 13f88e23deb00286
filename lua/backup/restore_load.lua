#!lua
-- Begin to restore a backup of a queue into an empty one, or write some of its keys. Until restore_end.lua,
-- `seq` and `sweep` hold other types than they should. So every script stops there before its first write
-- (rule 1). No call enqueues, claims or sweeps in a queue of which half is missing. Repeating a call
-- changes nothing. A restore that was interrupted begins anew.
--
-- KEYS
--   sweep  string  one word
--   seq    list    who restores what: restore, id of the backup, owner; then how many leases were given back
--   stats  hash    counters
--   items  1 for each key: in `begin` one that must not be there, in `load` one to write
-- ARGV
--   prefix  prefix of the queue's keys
--   phase   begin | load
--   backup  id of the backup
--   owner   the process that restores it: the last one that has begun; those before write nothing any more
--   probe   begin: a value of the backup, to see whether this server reads them
--   items   2 for each key in `load`: the time (ms) when it expires, 0 = never; its value, '' = there is no
--           such key
-- REPLY srv_us, ok | opening (all is there, and only restore_end.lua was cut off) | other (another process
--       has begun since, or the restore has ended) | busy (with the name of a key that is there) | unreadable
--       (with the server's words)
-- USES core/call: server_us, settled

settled(prefix)
-- The server's time also on queues made for tests: `sweep`, which says that one is, may be closed.
local srv_us, mark = server_us('', sweep), 'restore ' .. backup .. ' ' .. owner
local held = redis.call('TYPE', seq).ok == 'list' and redis.call('LINDEX', seq, 0)
if phase == 'load' then
  if held ~= mark then return { srv_us, 'other', '' } end
  for at = 1, #KEYS - 3 do
    local expires_ms, value = ARGV[4 + 2 * at], ARGV[5 + 2 * at]
    if value == '' then
      redis.call('DEL', KEYS[3 + at])
    else
      local done, failure = pcall(redis.call, 'RESTORE', KEYS[3 + at], expires_ms, value, 'REPLACE', 'ABSTTL')
      -- The others of the call can be read: the error names the one that cannot.
      local why = not done and (type(failure) == 'table' and failure.err or tostring(failure)) or ''
      if string.find(why, 'payload', 1, true) then
        error({ err = 'ERR the value of ' .. KEYS[3 + at] .. ': ' .. why })
      end
      if not done then error(failure) end
    end
  end
  return { srv_us, 'ok', '' }
end
local again = held and string.sub(held, 1, 9 + #backup) == 'restore ' .. backup .. ' '
if held and not again then return { srv_us, 'busy', held } end
local restored = string.match(redis.call('HGET', stats, 'restored') or '', '^%S*') == backup
if not again then
  if restored then return { srv_us, 'busy', 'restored' } end
  for at = 1, #KEYS do
    if redis.call('EXISTS', KEYS[at]) == 1 then return { srv_us, 'busy', KEYS[at] } end
  end
end
-- `seq` is the first key to be closed and the last to be opened: only a queue that it closes is restored.
if again then redis.call('LSET', seq, 0, mark) else redis.call('RPUSH', seq, mark, 0) end
if restored then return { srv_us, 'opening', '' } end
redis.call('LSET', seq, 1, 0)
local read = probe ~= '' and redis.pcall('RESTORE', sweep, 0, probe, 'REPLACE') or {}
if read.err and not again then
  redis.call('DEL', sweep)
  redis.call('DEL', seq)
end
if read.err then return { srv_us, 'unreadable', read.err } end
redis.call('SET', sweep, 'restore')
return { srv_us, 'ok', '' }
