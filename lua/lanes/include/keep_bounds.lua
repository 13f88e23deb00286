-- Retention: of `done` the newest, of the dead those within their count and age; at most 100 dead jobs are discarded in a call, the
-- oldest first. `retention` is the hash of the settings. Returns whether more dead ones are over.
-- helpers: envelope_open, end_job, due_member, free_unique, free_slots, ready_lane, tell_ended
local function keep_bounds(prefix, retention, done_max, now_ms, turn, wakes, helpers)
  local done, dead = prefix .. 'done', prefix .. 'dead'
  local kept = redis.call('HMGET', retention, 'done_max', 'done_age_ms', 'dead_max', 'dead_age_ms')
  local function before(age_ms) return '(' .. string.format('%d', now_ms - age_ms) end
  redis.call('ZREMRANGEBYRANK', done, 0, -(tonumber(kept[1] or done_max) + 1)) -- anchor: finished-jobs-are-bounded
  if kept[2] then redis.call('ZREMRANGEBYSCORE', done, '-inf', before(tonumber(kept[2]))) end
  -- 100,000 jobs and 90 days, unless the queue says otherwise.
  local over = redis.call('ZCARD', dead) - tonumber(kept[3] or 100000)
  over = math.max(over, redis.call('ZCOUNT', dead, '-inf', before(tonumber(kept[4] or 7776000000))))
  if over <= 0 then return false end
  for _, id in ipairs(redis.call('ZRANGE', dead, 0, math.min(over, 100) - 1)) do -- anchor: oldest-dead-go-first
    local job = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. id, 0, 700))
    -- Requeued by a call that was cut off before its last write, and in hand by now: it only leaves.
    if not job or redis.call('ZSCORE', prefix .. 'active', id) then
      redis.call('ZREM', dead, id)
    else
      helpers.end_job(prefix, job, id, { outcome = 2, op_id = 'retention', not_after_ms = now_ms }, now_ms, turn, wakes, helpers)
    end
  end
  return over > 100
end
