-- Put a schedule's job into its lane as an enqueue would. `sealed` is its envelope with sequence and times of zero, `job` the same opened.
-- The key and the index before the job, for the reasons that stand there.
-- helpers: to_lane, lane_score, note_class, tell_news, envelope_target
local function make_job(prefix, id, sealed, job, now_ms, turn, wakes, helpers)
  job.sequence = redis.call('INCR', prefix .. 'seq')
  if redis.call('HEXISTS', prefix .. 'classes', job.class) == 0 then
    helpers.note_class(prefix, prefix .. 'classes', job.class, helpers.envelope_target(sealed), now_ms, helpers)
  end
  if job.unique then redis.call('SET', prefix .. 'unique:' .. job.unique, id) end
  local wake = helpers.to_lane(prefix, id, job, turn, helpers.lane_score)
  redis.call('SET', prefix .. 'job:' .. id, string.sub(sealed, 1, 4) .. struct.pack('>I6I6', job.sequence, now_ms) .. string.sub(sealed, 17))
  if wake then wakes[wake] = true end
  if helpers.events then table.insert(helpers.events, { 'created', id, job.name, 'waiting' }) end
end
