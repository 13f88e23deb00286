-- The parents of a new job (rule 25), in KEYS job:<id>, feeds:<id>, heirs:<id> and result:<id> of each from `keys_at` on; reads only.
-- Returns those that it waits for, those of them that are lost already, the first that nobody knows, and of those that have ended and
-- left a result each with the time until which that lives.
-- helpers: envelope_open, parent_fate
local function read_parents(prefix, keys_at, flags, helpers)
  local waits_for, lost, results = {}, {}, {}
  for at = keys_at, #KEYS, 4 do
    local parent = string.sub(KEYS[at], #prefix + 5)
    redis.call('SCARD', KEYS[at + 1])
    redis.call('SCARD', KEYS[at + 2])
    local fate = helpers.parent_fate(prefix, helpers.envelope_open(redis.call('GETRANGE', KEYS[at], 0, 700)), parent)
    if not fate then
      -- Of `done` only the newest stay: how it has ended may be known for longer than that.
      local record = redis.pcall('GETRANGE', KEYS[at + 3], 0, 10)
      fate = record == '{"ok":true,' and 'done' or record == '{"ok":false' and 'lost'
    end
    if not fate then return waits_for, lost, parent end
    -- Flag 16: one that is lost counts as done.
    local tells = fate == 'lost' and math.floor(flags / 16) % 2 == 0
    if fate == 'open' or tells then waits_for[#waits_for + 1] = parent end -- anchor: child-waits-for-open-parents
    if tells then lost[#lost + 1] = parent end
    local until_ms = fate ~= 'open' and redis.call('PEXPIRETIME', KEYS[at + 3]) or 0
    if until_ms > 0 then results[#results + 1], results[#results + 2] = parent, until_ms end
  end
  return waits_for, lost, nil, results
end
