-- Subscribers that expired have left their eras behind. A few are looked at for each one that comes, so there are never many more of
-- them than of those that live. `cursors`: what comes before `r.<subscriber>` in the keys of cursors.
local function forget_expired(meta, cursors)
  for _, field in ipairs(redis.call('HRANDFIELD', meta, 5)) do
    if string.sub(field, 1, 2) == 'r.' and redis.call('EXISTS', cursors .. field) == 0 then redis.call('HDEL', meta, field) end
  end
end
