-- The start of each script: the time, the check of key types, and whether the call was carried out before.
--
-- HEAD of the scripts that name it: their first slots, and their first statement.
-- KEYS
--   sweep   hash    state of the sweeps
-- ARGV
--   now_ms  '' or the time of a test
--   prefix  prefix of the queue's keys
-- FIRST settled(prefix)

-- The script's one clock: server time in microseconds, or the time that a test passed in, which only queues
-- made for tests accept.
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

-- Refuse to run while the queue's slot migrates between two nodes of a cluster (rules 1 and 27). During a
-- migration both nodes refuse a command with two keys of which one is missing, and one of this pair always
-- is. After this check the script sees the whole slot. Without it, a key that is not in KEYS could read as
-- missing on a node that it has not reached. Its job would count as gone. Nothing was written yet, so a
-- client sends the call again after the reply TRYAGAIN. `feature`: more keys of the queue to look for, for
-- which a key of the pair can stand as well. Returns whether any of them exists.
local function settled(prefix, feature, ...)
  local there = redis.pcall('EXISTS', prefix .. 'absent', feature or prefix .. 'sweep', ...)
  if type(there) == 'table' then error({ err = 'TRYAGAIN the slot of the queue is on the move' }) end
  return there > 0
end

-- Rule 1: a key of the wrong type must stop the script before its first write. Each key is read once; the
-- error names the wrong one.
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
  error({ err = 'WRONGTYPE the key ' .. wrong .. ' is a ' .. redis.call('TYPE', wrong).ok .. ', it must be a '
    .. wanted })
end

-- These fields of a hash by name; no field for a missing one. `err` is the server's error if the key is no
-- hash.
local function fields_of(key, names)
  local values, fields = redis.pcall('HMGET', key, unpack(names)), {}
  for at, name in ipairs(names) do fields[name] = values[at] or nil end
  fields.err = values.err
  return fields
end

-- Whether to carry out an admin action (rule 7): nil, or the reply. 'repeated' is for a copy of a call that
-- was carried out, 'refused' for a call after its deadline. `op` is the key of the call's record.
local function administered(op, not_after_ms, now_ms)
  if redis.call('EXISTS', op) == 1 then return 'repeated' end
  if now_ms > not_after_ms then return 'refused' end -- anchor: late-admin-action-is-void
end

-- The recorded reply of an admin action that was carried out before, as a list of words.
local function recorded_words(op)
  local words = {}
  for word in string.gmatch(redis.call('GET', op) or '', '%S+') do words[#words + 1] = word end
  return words
end
