-- `run:<id>` holds what changes while a job runs, as one string (engine/models/envelope.py reads it too). So
-- one command writes those of a claim, and one reads those of a finish. It has fence, nonce, seal and owner,
-- and behind them the other fields that are not the default. Foreign models have a hash of their own under
-- this name, which is read as well.

-- The string of a first lease; every run begins like this.
local function run_start(fence, nonce, seal, owner)
  return fence .. ' ' .. nonce .. ' ' .. string.char(#seal, #owner) .. seal .. owner
end

-- The fields of a run by name; nil for bytes that are none.
local function run_unpack(packed)
  local fence, nonce, at = string.match(packed, '^(%d+) (%S*) ()')
  if not fence or #packed < at + 1 then return nil end
  local seal_size, owner_size = string.byte(packed, at, at + 1)
  local seal_at, owner_at = at + 2, at + 2 + seal_size
  at = owner_at + owner_size
  if #packed < at - 1 then return nil end
  local fields = { nonce = nonce }
  if fence ~= '0' then fields.fence, fields.claims = fence, '1' end
  if seal_size > 0 then fields.seal = string.sub(packed, seal_at, owner_at - 1) end
  if owner_size > 0 then fields.owner = string.sub(packed, owner_at, at - 1) end
  while at <= #packed do
    local name, size, value_at = string.match(packed, '^([%l%d_]+) (%d+):()', at)
    if not name then return nil end
    at = value_at + size
    fields[name] = string.sub(packed, value_at, at - 1)
  end
  return fields
end

-- The string of these fields.
local function run_pack(fields)
  local names, parts = {}, { run_start(fields.fence or '0', fields.nonce or '', fields.seal or '',
    fields.owner or '') }
  for name, value in pairs(fields) do
    local first = name == 'fence' or name == 'nonce' or name == 'seal' or name == 'owner'
      or name == 'claims' and value == '1'
    if not first and value ~= '' then names[#names + 1] = name end
  end
  -- In one order, so that equal fields are equal bytes.
  table.sort(names)
  for at, name in ipairs(names) do parts[at + 1] = name .. ' ' .. #fields[name] .. ':' .. fields[name] end
  return table.concat(parts)
end

-- The strings of many runs: KEYS number keys_at, keys_at + 2 and so on. False for one that does not exist or
-- has another type.
local function runs_of(keys_at, count)
  local found = {}
  for at = 1, count, PIECE do -- anchor: every-run-is-read
    local keys = {}
    for item = at, math.min(at + PIECE - 1, count) do keys[item - at + 1] = KEYS[keys_at + 2 * item - 2] end
    for item, run in ipairs(redis.call('MGET', unpack(keys))) do found[at + item - 1] = run end
  end
  return found
end

-- All fields of a run by name; nil where there is none. Raises for a key of another type, or that cannot be
-- read.
local function run_open(run)
  local packed = redis.call('GET', run)
  local fields = packed and run_unpack(packed)
  if packed and not fields then error({ err = 'IRONCLAIM the key ' .. run .. ' is no run of a job' }) end
  return fields or nil
end

-- These fields of a run, as HMGET gives them.
local function run_read(run, ...)
  local packed = redis.pcall('GET', run)
  if type(packed) == 'table' then return redis.call('HMGET', run, ...) end
  local fields, values = packed and run_open(run) or {}, {}
  for at, name in ipairs({ ... }) do values[at] = fields[name] or false end
  return values
end

-- As run_read, but without an error for a run that cannot be read, because a reply must still show the
-- others.
local function run_look(run, ...)
  local readable, values = pcall(run_read, run, ...)
  return readable and values or {}
end

-- Whether a run can be read: a key of another type, or bytes that are none, cannot.
local function run_is_readable(run)
  return (pcall(run_open, run))
end

-- Write fields of a run: names and values in turn. All in one command, so that a script that is cut off
-- writes all or none.
local function run_write(run, ...)
  local fields, words = run_open(run) or {}, { ... }
  for at = 1, #words, 2 do
    fields[words[at]] = type(words[at + 1]) == 'number' and string.format('%d', words[at + 1])
      or words[at + 1]
  end
  redis.call('SET', run, run_pack(fields))
end

-- As run_write, but a run that cannot be read stays as it is: it may be the reason why its job is buried.
local function run_note(run, ...)
  if run_is_readable(run) then run_write(run, ...) end
end
