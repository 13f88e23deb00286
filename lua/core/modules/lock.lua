-- The record of a lock.

-- Its token, fence, until_ms, length_ms and renewal, 0 for a missing one. A lock with an unreadable number is
-- refused, because its holder and its next fence are unknown.
local function lock_read(lock)
  local numbers = { 'fence', 'until_ms', 'length_ms', 'renewal' }
  local kept = redis.call('HMGET', lock, 'token', unpack(numbers))
  for at, name in ipairs(numbers) do
    local number = tonumber(kept[at + 1] or 0)
    if not number or number % 1 ~= 0 or number < 0 or number >= EXACT_MAX then
      error({ err = 'IRONCLAIM the lock ' .. lock .. ' cannot be read: its ' .. name .. ' is '
        .. string.format('%q', kept[at + 1]) })
    end
    kept[at + 1] = number
  end
  return unpack(kept)
end
