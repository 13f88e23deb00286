"""The script that reads a whole queue in one round trip."""

from __future__ import annotations

READ_STATE = """#!lua flags=allow-oom
-- Everything that a queue keeps, at one instant: all its raw keys with their values and the times at which they expire.
-- With ARGV[2] a time, deletes first what has expired by then: the server's own clock never comes to the simulator's years.
--
-- ARGV: prefix of the queue's keys, '' or the time (ms) of the simulator
-- REPLY names, values, the next time at which a key expires
local prefix, now_ms = ARGV[1], tonumber(ARGV[2])
local ZSETS = { ready = true, lane = true, active = true, due = true, dead = true, done = true, held = true, rate = true,
  rest = true, blocking = true, cron = true, blocked = true, handing = true, keeping = true, workers = true, took = true,
  expiring = true, history = true }
local HASHES = { sweep = true, stats = true, classes = true, limits = true, paused = true, routed = true,
  settings = true, retention = true, connections = true }
local SETS = { needs = true, feeds = true, feeding = true, heirs = true, lacks = true, lost = true }
local names = redis.call('KEYS', prefix .. '*')
table.sort(names)
local found, values, next_ms = {}, {}, 0
for _, key in ipairs(names) do
  local name = string.sub(key, #prefix + 1)
  local kind = string.match(name, '^%a+')
  local gone = false
  if not (kind == 'run' or kind == 'wake' or kind == 'lane' or name == 'active' or HASHES[kind] or name == 'due') then
    local at_ms = redis.call('PEXPIRETIME', key)
    if at_ms > 0 and now_ms and at_ms <= now_ms then
      redis.call('DEL', key)
      gone = true
    elseif at_ms > 0 and (next_ms == 0 or at_ms < next_ms) then
      next_ms = at_ms
    end
  end
  if not gone then
    local value
    if kind == 'run' then value = redis.call('GET', key)
    elseif kind == 'job' then value = redis.call('GETRANGE', key, 0, 500)
    elseif name == 'era' then value = redis.call('LRANGE', key, 0, -1)
    elseif kind == 'wake' or kind == 'news' then value = redis.call('LLEN', key)
    elseif HASHES[kind] or name == 'parked' or string.match(name, '^cron:') or string.match(name, '^took:') or kind == 'lock' then
      value = redis.call('HGETALL', key)
    elseif ZSETS[kind] or kind == 'parked' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    elseif kind == 'result' then value = { redis.call('GET', key), redis.call('PEXPIRETIME', key) }
    elseif SETS[kind] then
      value = redis.call('SMEMBERS', key)
      table.sort(value)
    else value = redis.call('GET', key) end
    found[#found + 1] = name
    values[#values + 1] = value
  end
end
return { found, values, next_ms }
"""
