-- The envelope of a job, as engine/models/envelope.py writes it, and its tombstone. Both layouts are
-- described there.
-- RARELY tombstone_open

-- Where the parts of a job's envelope begin. Returns flags; the positions of the numbers, the enqueue nonce,
-- the settings and the class with its length; and the lengths of class, key, name and unique key. Nil for
-- bytes that are no envelope of a job.
local function envelope_layout(raw)
  local first, flags = string.byte(raw, 1, 2)
  local numbers_at = 2
  if not flags then return nil end
  if first > 176 and first < 187 then
    numbers_at = 3
  elseif first > 160 and first < 171 then
    flags = 0
  else
    return nil
  end
  local nonce_at = numbers_at + (flags >= 128 and 18 or 9) + math.floor(flags / 2) % 2 * 6
  local settings_at = nonce_at + math.floor(flags / 64) % 2 * 8
  local class_at = settings_at + math.floor(flags / 4) % 2 * 15
  if #raw < class_at then return nil end
  local key_length, name_length, unique_length = 0, 0, 0
  if class_at > settings_at then
    key_length, name_length, unique_length = string.byte(raw, class_at - 3, class_at - 1)
  end
  local class_length = string.byte(raw, class_at)
  if #raw < class_at + class_length + key_length + name_length + unique_length then return nil end
  -- A longer one has no room in the seal of a lease. A claim would notice that only after its first writes.
  if unique_length > 240 then return nil end
  return flags, numbers_at, nonce_at, settings_at, class_at, class_length, key_length, name_length,
    unique_length
end

-- The nonce of a lease in the fewest bytes: the mark that is added to the outcome of a tombstone, and the
-- bytes. The nonce of a claim is its incarnation and a counter. Any other text stays text.
local function pack_token(nonce)
  local is_claim = string.byte(nonce, 17) == 58 and string.find(nonce, '^[%da-f]+:[1-9]%d*$')
  local number = is_claim and tonumber(string.sub(nonce, 18))
  if not number or number > U48_MAX then return 32, nonce end
  return 0, struct.pack(number < 256 and '>I4I4B' or number < 65536 and '>I4I4H' or '>I4I4I6',
    tonumber(string.sub(nonce, 1, 8), 16), tonumber(string.sub(nonce, 9, 16), 16), number)
end

-- The tombstone of a job. outcome: see envelope_open; enqueue_nonce: '' for an id that needs none; token:
-- what pack_token returns.
local function tombstone_of(outcome, enqueue_nonce, fence, mark, token)
  return '\160' .. string.char(outcome + mark + (enqueue_nonce ~= '' and 16 or 0)) .. enqueue_nonce
    .. struct.pack('>I7', fence) .. token
end

-- Decode a tombstone. Its table has kind 'T'; nil for bytes that are none.
local function tombstone_open(raw)
  local marks = string.byte(raw, 2) or 0
  local names = { 'finished', 'discarded', 'rejected', 'orphaned', 'skipped', 'rerouted', 'cancelled',
    'expired', 'moving' }
  local at, is_text = marks % 32 >= 16 and 11 or 3, marks >= 32
  if not names[marks % 16] or marks >= 64 or #raw < at + (is_text and 6 or 15) then return nil end
  local nonce = string.sub(raw, at + 7)
  if not is_text then
    local high, low = struct.unpack('>I4I4', nonce)
    local counter = 0
    for _, digit in ipairs({ string.byte(nonce, 9, 14) }) do counter = counter * 256 + digit end
    nonce = string.format('%08x%08x:%d', high, low, counter)
  end
  return { kind = 'T', outcome = names[marks % 16], enqueue_nonce = string.sub(raw, 3, at - 1),
    fence = string.format('%d', struct.unpack('>I7', raw, at)), nonce = nonce }
end

-- The first bytes of a job's key, up to the byte `last`. A key of another type gives the server's error text,
-- which opens as corrupt, so that it hides no other job.
local function look_at(key, last)
  local raw = redis.pcall('GETRANGE', key, 0, last)
  return type(raw) == 'table' and raw.err or raw
end

-- Decode the head of an envelope or of a tombstone.
-- Returns a table with kind 'J' (job), 'T' (tombstone) or 'corrupt'; nil where there is no such key.
local function envelope_open(raw)
  if not raw or raw == '' then return nil end
  local job = { kind = 'corrupt' }
  if string.byte(raw) == 160 then return tombstone_open(raw) or job end
  local flags, at, nonce_at, settings_at, class_at, class_length, key_length, name_length, unique_length =
    envelope_layout(raw)
  if not flags then return job end
  job.priority, job.flags, job.due_ms = string.byte(raw) % 16, flags, 0
  if flags >= 128 then
    job.sequence, job.enqueued_ms, job.not_after_ms, at = struct.unpack('>I6I6I6', raw, at)
  else
    local high, low
    high, low, at = struct.unpack('>I4I5', raw, at)
    job.sequence, job.enqueued_ms = math.floor(high / 4), high % 4 * 1099511627776 + low
    job.not_after_ms = job.enqueued_ms + 10000
  end
  if at < nonce_at then job.due_ms = struct.unpack('>I6', raw, at) end
  job.enqueue_nonce = string.sub(raw, nonce_at, settings_at - 1)
  job.attempts, job.crashes_max = ATTEMPTS, CRASHES_MAX
  local _
  if settings_at < class_at then
    job.attempts, _, job.crashes_max = struct.unpack('>HBB', raw, settings_at)
  end
  at = class_at + 1
  job.class = string.sub(raw, at, at + class_length - 1)
  at = at + class_length
  job.lane = key_length == 0 and job.class or job.class .. '/' .. string.sub(raw, at, at + key_length - 1)
  at = at + key_length
  job.name = name_length > 0 and string.sub(raw, at, at + name_length - 1) or job.class
  at = at + name_length
  job.unique = unique_length > 0 and string.sub(raw, at, at + unique_length - 1) or nil
  -- The position of the length of the options; the options follow as JSON.
  if math.floor(flags / 8) % 2 == 1 then job.options_at = at + unique_length end
  job.kind = 'J'
  return job
end

-- The head of the job under a key, opened. A key of another type opens as corrupt, because it must not hide
-- other jobs.
local function job_head(key)
  return envelope_open(look_at(key, HEAD_LAST))
end

-- The same for a key that the caller has named, or knows: one of another type raises.
local function checked_head(key)
  return envelope_open(redis.call('GETRANGE', key, 0, HEAD_LAST))
end

-- The beginning of an envelope up to the enqueue nonce, with the fields that the server sets. `head`: its
-- first byte, and the flags if there are any; due_ms: 0 where the job is not delayed.
local function envelope_start(head, sequence, now_ms, due_ms, not_after_ms)
  local start
  if sequence < 1073741824 and now_ms < 4398046511104 and not_after_ms <= now_ms + 10000 then
    start = head .. struct.pack('>I4I5', sequence * 4 + math.floor(now_ms / 1099511627776),
      now_ms % 1099511627776)
  else
    local first, flags = string.byte(head, 1, 2)
    start = string.char(160 + 16 + first % 16, (flags or 0) + 128)
      .. struct.pack('>I6I6I6', sequence, now_ms, not_after_ms)
  end
  return due_ms > 0 and start .. struct.pack('>I6', due_ms) or start
end

-- The seal is the part of an envelope that the end of the job needs: not_after_ms (6 bytes), a byte with the
-- length of the enqueue nonce, the nonce, the unique key. `run` keeps it while the job is leased, so that a
-- finish need not read the envelope.
local function seal_of(not_after_ms, enqueue_nonce, unique)
  return struct.pack('>I6B', not_after_ms, #enqueue_nonce) .. enqueue_nonce .. (unique or '')
end

-- The seal of a job. `raw` is a whole envelope of kind J.
local function envelope_seal(raw)
  if string.byte(raw) < 176 then
    local high, low = struct.unpack('>I4I5', raw, 2)
    return struct.pack('>I6B', high % 4 * 1099511627776 + low + 10000, 0)
  end
  local job = envelope_open(raw)
  return seal_of(job.not_after_ms, job.enqueue_nonce, job.unique)
end

-- The unique key in a seal; nil where there is none.
local function seal_unique(seal)
  local at = 8 + (string.byte(seal, 7) or 0)
  return #seal >= at and string.sub(seal, at) or nil
end

-- The kind of the value under a job's key, without decoding it: 'J' (job), 'T' (tombstone) or 'corrupt'; nil
-- where there is no such key. The same answer as envelope_open gives, at a tenth of its cost.
local function envelope_kind(raw)
  if not raw or raw == '' then return nil end
  local first = string.byte(raw)
  if first > 160 and first < 171 then
    return #raw > 10 and #raw >= 11 + string.byte(raw, 11) and 'J' or 'corrupt'
  end
  if first == 160 then return tombstone_open(raw) and 'T' or 'corrupt' end
  return envelope_layout(raw) and 'J' or 'corrupt'
end

-- The rarer options of a job, from its envelope; nil if there are none or they cannot be read.
local function envelope_options(raw)
  local flags, _, _, _, class_at, class_length, key_length, name_length, unique_length = envelope_layout(raw)
  if math.floor((flags or 0) / 8) % 2 == 0 then return nil end
  local at = class_at + 1 + class_length + key_length + name_length + unique_length
  if #raw < at + 1 then return nil end
  local read, options = pcall(cjson.decode, string.sub(raw, at + 2, at + 1 + struct.unpack('>H', raw, at)))
  return read and type(options) == 'table' and options or nil
end

-- How many units of a rate a job costs, from its envelope (flag 32: more than one, in its options).
local function envelope_cost(raw)
  local first, flags = string.byte(raw, 1, 2)
  if first < 176 or math.floor(flags / 32) % 2 == 0 then return 1 end
  local options = envelope_options(raw) or {}
  return math.min(1000, math.max(1, tonumber(options.cost) or 1))
end

-- The target that a job requires of a worker, as JSON, from its envelope; '' = none. A job of an unknown
-- class needs it.
local function envelope_target(raw)
  local options = envelope_options(raw)
  if not options or not (options.route or options.target) then return '' end
  local wanted = options.target or {}
  wanted.route = options.route
  return cjson.encode(wanted)
end

-- The rarer options of a job of which only the head was read; nil as of envelope_options. `job` is its opened
-- envelope, `key` where it is.
local function options_of(key, job)
  if not job.options_at then return nil end
  local high, low = string.byte(redis.call('GETRANGE', key, job.options_at - 1, job.options_at), 1, 2)
  local length = (high or 0) * 256 + (low or 0)
  local read, options = pcall(cjson.decode, redis.call('GETRANGE', key, job.options_at + 1,
    job.options_at + length))
  return read and type(options) == 'table' and options or nil
end

-- How long the error of a dead job is kept, in ms (0: not at all). `job` is its opened envelope, or a table
-- without fields.
local function error_ttl(prefix, id, job)
  return tonumber((options_of(prefix .. 'job:' .. id, job) or {}).error_ttl_ms) or ERROR_TTL_MS
end
