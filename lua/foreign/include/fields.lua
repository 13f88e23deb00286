-- The fields of a packed string (engine/models/fields.py): each is its length, 4 bytes, big-endian, and then itself.
local function fields(packed)
  local found, at = {}, 1
  while at <= #packed do
    found[#found + 1], at = struct.unpack('>I4c0', packed, at)
  end
  return found
end
