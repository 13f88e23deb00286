-- What a job wants of a worker, as JSON, by its envelope; '' = nothing. For those who make a job of a class that is not known any more.
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
