-- The envelope of a job, as engine/models/envelope.py writes it.

-- Decode the head of an envelope or of a tombstone (layout: engine/models/envelope.py).
-- Returns a table with kind 'J' (job), 'T' (tombstone) or 'corrupt'; nil where there is no such key.
local function envelope_open(raw)
  if not raw or raw == '' then return nil end
  local version, kind = string.byte(raw, 1, 2)
  if version == 1 and kind == 84 and #raw >= 20 and #raw >= 20 + string.byte(raw, 20) then
    local _, _, outcome, enqueue_nonce, fence, nonce = struct.unpack('>BBBc8I8Bc0', raw)
    local names = { 'finished', 'discarded', 'rejected', 'orphaned', 'skipped', 'rerouted', 'cancelled' }
    return { kind = 'T', outcome = names[outcome], enqueue_nonce = enqueue_nonce, fence = string.format('%d', fence), nonce = nonce }
  end
  local job = { kind = 'corrupt' }
  if version ~= 1 or kind ~= 74 or #raw < 42 then return job end
  local delayed = math.floor(string.byte(raw, 4) / 2) % 2 == 1
  local at = delayed and 23 or 17
  if #raw < at + 25 then return job end
  local class_length, key_length, name_length, unique_length = string.byte(raw, at + 22, at + 25)
  if #raw < at + 25 + class_length + key_length + name_length + unique_length then return job end
  job.priority, job.flags, job.sequence, job.enqueued_ms = struct.unpack('>BBI6I6', raw, 3)
  job.due_ms = delayed and struct.unpack('>I6', raw, 17) or 0
  local _
  job.enqueue_nonce, job.not_after_ms, job.attempts, _, job.crashes_max = struct.unpack('>c8I6HBB', raw, at)
  at = at + 26
  job.class = string.sub(raw, at, at + class_length - 1)
  at = at + class_length
  job.lane = key_length == 0 and job.class or job.class .. '/' .. string.sub(raw, at, at + key_length - 1)
  at = at + key_length
  job.name = name_length > 0 and string.sub(raw, at, at + name_length - 1) or job.class
  at = at + name_length
  -- Where the length of the options begins, followed by the options as JSON.
  if math.floor(job.flags / 8) % 2 == 1 then job.options_at = at + unique_length + (math.floor(job.flags / 4) % 2 == 1 and 4 or 0) end
  job.unique = unique_length > 0 and string.sub(raw, at, at + unique_length - 1) or nil
  job.kind = 'J'
  return job
end

-- The part of an envelope that ending the job needs: enqueue nonce (8 bytes), not_after_ms (6 bytes), unique key. It is kept in
-- `run` while the job is leased, so that a finish need not read the envelope. `raw` is a whole envelope of kind J.
local function envelope_seal(raw)
  local at = math.floor(string.byte(raw, 4) / 2) % 2 == 1 and 23 or 17
  local class_length, key_length, name_length, unique_length = string.byte(raw, at + 22, at + 25)
  if unique_length == 0 then return string.sub(raw, at, at + 13) end
  local unique_at = at + 26 + class_length + key_length + name_length
  return string.sub(raw, at, at + 13) .. string.sub(raw, unique_at, unique_at + unique_length - 1)
end

-- The kind of the value under a job's key, without decoding it: 'J' (job), 'T' (tombstone) or 'corrupt'; nil where there is no
-- such key. The same answer as envelope_open gives, at a tenth of its cost.
local function envelope_kind(raw)
  if not raw or raw == '' then return nil end
  local version, kind = string.byte(raw, 1, 2)
  if version ~= 1 then return 'corrupt' end
  if kind == 84 then return #raw >= 20 and #raw >= 20 + string.byte(raw, 20) and 'T' or 'corrupt' end
  if kind ~= 74 or #raw < 42 then return 'corrupt' end
  local at = math.floor(string.byte(raw, 4) / 2) % 2 == 1 and 48 or 42
  if #raw < at then return 'corrupt' end
  local class_length, key_length, name_length, unique_length = string.byte(raw, at - 3, at)
  return #raw >= at + class_length + key_length + name_length + unique_length and 'J' or 'corrupt'
end

-- How many places in the window of a rate a job takes, by its envelope (flag 32: more than one, in its options).
local function envelope_cost(raw)
  local flags = string.byte(raw, 4)
  if math.floor(flags / 32) % 2 == 0 then return 1 end
  local at = math.floor(flags / 2) % 2 == 1 and 23 or 17
  local class_length, key_length, name_length, unique_length = string.byte(raw, at + 22, at + 25)
  at = at + 26 + class_length + key_length + name_length + unique_length + (math.floor(flags / 4) % 2 == 1 and 4 or 0)
  if #raw < at + 1 then return 1 end
  local read, options = pcall(cjson.decode, string.sub(raw, at + 2, at + 1 + struct.unpack('>H', raw, at)))
  return read and type(options) == 'table' and math.min(1000, math.max(1, tonumber(options.cost) or 1)) or 1
end

-- What a job requires of a worker, as JSON, by its envelope; '' = nothing. Needed when a job is made of a class that is no longer
-- known.
local function envelope_target(raw)
  local flags, at = string.byte(raw, 4), 17
  if math.floor(flags / 8) % 2 == 0 then return '' end
  if math.floor(flags / 2) % 2 == 1 then at = 23 end
  local class_length, key_length, name_length, unique_length = string.byte(raw, at + 22, at + 25)
  at = at + 26 + class_length + key_length + name_length + unique_length + (math.floor(flags / 4) % 2 == 1 and 4 or 0)
  local size = struct.unpack('>H', raw, at)
  local read, options = pcall(cjson.decode, string.sub(raw, at + 2, at + 1 + size))
  if not read or type(options) ~= 'table' or not (options.route or options.target) then return '' end
  local wanted = options.target or {}
  wanted.route = options.route
  return cjson.encode(wanted)
end

-- How long the error of a dead job is kept, in ms (0: not at all). `job` is its opened envelope, or a table without fields.
local function error_ttl(prefix, id, job)
  if not job.options_at then return 86400000 end
  local key = prefix .. 'job:' .. id
  local high, low = string.byte(redis.call('GETRANGE', key, job.options_at - 1, job.options_at), 1, 2)
  local length = (high or 0) * 256 + (low or 0)
  local read, options = pcall(cjson.decode, redis.call('GETRANGE', key, job.options_at + 1, job.options_at + length))
  return read and type(options) == 'table' and tonumber(options.error_ttl_ms) or 86400000
end
