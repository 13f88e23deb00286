-- Retention, where the queue has set it: the formats themselves keep ended jobs as they do. At most 100 jobs are removed in a call, the
-- oldest first. Returns whether more are over.
local function keep_ended(prefix, now_ms, model)
  local kept = redis.call('HMGET', prefix .. 'retention', 'done_max', 'done_age_ms', 'dead_max', 'dead_age_ms')
  local more = false
  for at, state in ipairs({ 'done', 'dead' }) do
    local most, age_ms = tonumber(kept[2 * at - 1]), tonumber(kept[2 * at])
    local over = most and model.count(state) - most or 0
    if over > 0 or age_ms then
      local page, removed = model.list(state, 0, 100, false), 0
      for place = 1, #page, 2 do
        local at_ms = tonumber(page[place + 1] or 0) or 0
        if over > removed or age_ms and at_ms > 0 and at_ms < now_ms - age_ms then
          model.remove(page[place], state)
          removed = removed + 1
        end
      end
      more = more or removed == 100
    end
  end
  return more
end
