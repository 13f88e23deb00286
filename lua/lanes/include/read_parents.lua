-- The parents of a new job (rule 25), pairs of job:<id> and feeds:<id> in KEYS from `keys_at` on; reads only. Returns those that it waits
-- for, those of them that are lost already, and the first that nobody knows.
-- helpers: envelope_open, parent_fate
local function read_parents(prefix, keys_at, flags, helpers)
  local waits_for, lost = {}, {}
  for at = keys_at, #KEYS, 2 do
    local parent = string.sub(KEYS[at], #prefix + 5)
    redis.call('SCARD', KEYS[at + 1])
    local fate = helpers.parent_fate(prefix, helpers.envelope_open(redis.call('GETRANGE', KEYS[at], 0, 700)), parent)
    if not fate then
      -- Of `done` only the newest stay: how it has ended may be known for longer than that.
      local record = redis.pcall('GETRANGE', prefix .. 'result:' .. parent, 0, 10)
      fate = record == '{"ok":true,' and 'done' or record == '{"ok":false' and 'lost'
    end
    if not fate then return waits_for, lost, parent end
    -- Flag 16: one that is lost counts as done.
    if fate == 'open' or fate == 'lost' and math.floor(flags / 16) % 2 == 0 then waits_for[#waits_for + 1] = parent end
    if fate == 'lost' then lost[#lost + 1] = parent end
  end
  return waits_for, lost
end
