#!lua flags=allow-oom
-- BridgeMQ's claim: the first of 100 waiting jobs that this worker may run becomes active and locked. Slots and reply are those
-- of the original. A job on which the original fails (no JSON, null in place of an object, no type) is passed over and keeps no
-- lock; a job that is active already does not raise the counter of its type again.
--
-- KEYS
--   waiting       list    ids, claimed from the head
--   active        set     ids
--   paused        set     types of jobs that are not claimed
-- ARGV
--   workerId      becomes the value of the lock
--   stack         JSON array
--   capabilities  JSON array
--   region        JSON array
--   currentTime   ms; not read, as by the original
--   lockTTL       seconds
--   dataPrefix    prefix of the keys of jobs
--   lockPrefix    prefix of the keys of locks
--   ratePrefix    prefix of the keys of counters
-- REPLY the job's JSON, or nil
local waiting = KEYS[1]
local active = KEYS[2]
local paused = KEYS[3]
local worker_id, lock_ttl = ARGV[1], ARGV[6]
local data_prefix, lock_prefix, rate_prefix = ARGV[7], ARGV[8], ARGV[9]

local function object(value)
  return type(value) == 'table' and value or nil
end

local function decoded(text)
  local read, value = pcall(cjson.decode, text)
  return read and object(value) or nil
end

local function set_of(text)
  local found = {}
  for _, value in ipairs(decoded(text) or {}) do found[value] = true end
  return found
end

local has = { stack = set_of(ARGV[2]), capabilities = set_of(ARGV[3]), region = set_of(ARGV[4]) }

-- Each category with values must match; `mode` is about capabilities only. Absent it means any; null means all, like any other word.
local function meets(category, wanted, all)
  if type(wanted) == 'string' then wanted = { wanted } end
  if not object(wanted) or #wanted == 0 then return true end
  local met = 0
  for _, value in ipairs(wanted) do
    if has[category][value] then met = met + 1 end
  end
  return met > 0 and (not all or met == #wanted)
end

local function matches(target)
  if not target then return true end
  local server = target.server
  if server ~= nil and server ~= cjson.null and server ~= '' then return server == worker_id end
  return meets('stack', target.stack) and meets('region', target.region)
    and meets('capabilities', target.capabilities, target.mode ~= nil and target.mode ~= 'any')
end

local function has_room(job)
  local most = (object(job.rateLimit) or {}).maxConcurrent
  local running = type(most) == 'number' and redis.pcall('GET', rate_prefix .. job.type)
  return not (type(running) == 'string' and tonumber(running) and tonumber(running) >= most)
end

-- A type without a limit of its own gets no counter, on which a later claim could fail.
local function count(kind)
  redis.pcall('INCR', rate_prefix .. kind)
end

for _, id in ipairs(redis.call('LRANGE', waiting, 0, 99)) do
  local raw = redis.pcall('GET', data_prefix .. id)
  local job = type(raw) == 'string' and decoded(raw)
  if raw == false then
    redis.call('LREM', waiting, 1, id)
  elseif job and type(job.type) == 'string' and redis.call('SISMEMBER', paused, job.type) == 0 and has_room(job)
    and matches(object(job.target)) and redis.call('SET', lock_prefix .. id, worker_id, 'NX', 'EX', lock_ttl) then
    local new = redis.call('SADD', active, id) == 1
    redis.call('LREM', waiting, 1, id)
    if new then count(job.type) end
    return raw
  end
end
return nil
