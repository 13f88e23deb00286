#!lua flags=allow-oom
-- BridgeMQ's release: frees a lock that this worker holds, removes its job from the active ones, and lowers its type's counter by
-- one, not below 0. Slots and reply are those of the original. If the lock has expired and the job has ended, the reply is 0 as
-- in the original, but the remains of the claim (the active member, the count) are removed all the same.
--
-- KEYS
--   lock      string  id of the worker that holds it
--   active    set     ids
--   rate      string  running jobs of the type
-- ARGV
--   workerId  id of the worker that releases
--   jobId     the job
-- REPLY 1 = released, 0 = not held by this worker
local lock = KEYS[1]
local active = KEYS[2]
local rate = KEYS[3]
local worker_id, id = ARGV[1], ARGV[2]

local function leave()
  local running = redis.pcall('GET', rate)
  local counted = type(running) == 'string' and (tonumber(running) or 0) > 0
  if redis.call('SREM', active, id) == 1 and counted then redis.pcall('DECR', rate) end
end

local holder = redis.call('GET', lock)
if holder == worker_id then
  leave()
  redis.call('DEL', lock)
  return 1
end
-- The status key has the same prefix as the lock.
local root = string.sub(lock, -#id - 5) == 'lock:' .. id and string.sub(lock, 1, -#id - 6)
local status = not holder and root and redis.pcall('GET', root .. 'status:' .. id)
if status == 'completed' or status == 'dead' or status == 'failed' then leave() end
return 0
