-- Let a lane (`l:<lane>`) or the marker of a class (`w:<class>`) rest until a time. The longest such rest is kept, so that a clock
-- which steps back cannot make it longer (rule 10).
local function rest_until(prefix, sweep, member, until_ms, now_ms)
  local longest_ms = tonumber(redis.call('HGET', sweep, 'max_rest_ms') or 0)
  if until_ms - now_ms > longest_ms then redis.call('HSET', sweep, 'max_rest_ms', until_ms - now_ms) end
  redis.call('ZADD', prefix .. 'rest', until_ms, member)
end
