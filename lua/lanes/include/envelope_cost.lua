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
