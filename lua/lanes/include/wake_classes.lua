-- Re-arm the markers (rule 22): one for each class with ready lanes that is not paused.
-- helpers: is_paused, wake_push
local function wake_classes(prefix, now_ms, helpers)
  for _, class in ipairs(redis.call('HKEYS', prefix .. 'classes')) do
    if redis.call('ZCARD', prefix .. 'ready:' .. class) > 0 and not helpers.is_paused(prefix .. 'paused', class, now_ms) then
      helpers.wake_push(prefix .. 'wake:' .. class) -- anchor: sweep-leaves-a-marker
    end
  end
end
