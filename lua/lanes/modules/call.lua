-- The begin of scripts: the time, the check of key types, and whether a call was carried out before.

-- The script's one clock: microseconds of the server, or the time that a test gave, on queues that were made for tests.
local function server_us(given_ms, sweep)
  if given_ms ~= '' then
    if redis.call('HGET', sweep, 'test_clock') ~= '1' then
      error('IRONCLAIM now_ms is for queues created for tests')
    end
    return tonumber(given_ms) * 1000
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Refuse to run while the queue's slot moves between two nodes of a cluster (rules 1 and 27). Both nodes refuse a command with two
-- keys of which one is missing, and this pair always has one that is. What comes after it then sees the whole slot: a key that is not
-- in KEYS would else read as missing at the node that it has not reached, and its job would be taken for gone. Nothing was written
-- yet, so the reply is the one for which a call is simply sent again.
local function settled(prefix)
  local there = redis.pcall('EXISTS', prefix .. 'sweep', prefix .. 'absent')
  if type(there) == 'table' then error({ err = 'TRYAGAIN the slot of the queue is on the move' }) end
end

-- Rule 1: a key of the wrong type must stop the script before its first write. Each read shows it, and the error names the key.
local function check_types(zsets, hashes, lists, strings)
  local pcall, wrong, wanted, found = redis.pcall, nil, nil, nil
  for _, key in ipairs(zsets) do
    found = pcall('ZCARD', key)
    if type(found) == 'table' then wrong, wanted = key, 'zset' break end
  end
  for _, key in ipairs(wrong and {} or hashes) do
    found = pcall('HLEN', key)
    if type(found) == 'table' then wrong, wanted = key, 'hash' break end
  end
  for _, key in ipairs(wrong and {} or lists) do
    found = pcall('LLEN', key)
    if type(found) == 'table' then wrong, wanted = key, 'list' break end
  end
  for _, key in ipairs(wrong and {} or strings or {}) do
    found = pcall('STRLEN', key)
    if type(found) == 'table' then wrong, wanted = key, 'string' break end
  end
  if not wrong then return end
  -- Any other error is reported as the server gives it.
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then error(found) end
  error({ err = 'WRONGTYPE the key ' .. wrong .. ' is a ' .. redis.call('TYPE', wrong).ok .. ', it must be a ' .. wanted })
end

-- Whether to carry out an admin action (rule 7). Returns nil to do so, else the reply: 'repeated' for a copy of one that was done,
-- 'refused' for one that comes too late. `op` is the record of the call.
local function administered(op, not_after_ms, now_ms)
  if redis.call('EXISTS', op) == 1 then return 'repeated' end
  if now_ms > not_after_ms then return 'refused' end -- anchor: late-admin-action-is-void
end

-- The reply of an admin action that was carried out before: the words of its record.
local function told_before(op)
  local words = {}
  for word in string.gmatch(redis.call('GET', op) or '', '%S+') do words[#words + 1] = word end
  return words
end
