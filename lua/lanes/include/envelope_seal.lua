-- What the end of a job needs of its envelope, kept in `run` while it is leased, so that a finish need not read the envelope: enqueue
-- nonce (8 bytes), not_after_ms (6 bytes), unique key. `raw` is a whole envelope of kind J.
local function envelope_seal(raw)
  local at = math.floor(string.byte(raw, 4) / 2) % 2 == 1 and 23 or 17
  local class_length, key_length, name_length, unique_length = string.byte(raw, at + 22, at + 25)
  if unique_length == 0 then return string.sub(raw, at, at + 13) end
  local unique_at = at + 26 + class_length + key_length + name_length
  return string.sub(raw, at, at + 13) .. string.sub(raw, unique_at, unique_at + unique_length - 1)
end
