-- Something has changed that workers learn once: a class with a target, or a setting of theirs. Who knows the version before this
-- one blocks on a list that bears its number; whoever takes the marker learns what is new and leaves one for the next
-- (news.lua), so a single marker reaches all of them and then lies where nobody waits any more.
local function tell_news(prefix, now_ms)
  local version = tonumber(redis.call('HGET', prefix .. 'settings', 'version') or 0)
  local news = prefix .. 'news:' .. string.format('%d', version)
  if redis.call('LLEN', news) == 0 then redis.call('RPUSH', news, '1') end
  redis.call('PEXPIREAT', news, now_ms + 60000)
  redis.call('HSET', prefix .. 'settings', 'version', string.format('%d', version + 1))
end
