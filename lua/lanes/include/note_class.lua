-- Remember a class before its first job is there. Nobody waits for the marker of one that has a target, so the workers are told of
-- it, and it is kept with its name, for what is paused and limited by name.
-- helpers: tell_news
local function note_class(prefix, classes, class, target, now_ms, helpers)
  if target ~= '' then
    local name = string.match(class, '^[^@]*')
    local routed = redis.call('HGET', prefix .. 'routed', name) or ''
    if not string.find(routed .. ' ', ' ' .. class .. ' ', 1, true) then redis.call('HSET', prefix .. 'routed', name, routed .. ' ' .. class) end
    helpers.tell_news(prefix, now_ms) -- anchor: new-class-is-announced
  end
  redis.call('HSET', classes, class, target)
end
