-- Put a schedule's job into its lane as an enqueue would. `sealed` is its envelope with sequence and times of zero, `job` the same opened.
-- The index before the job, and that with its key, for the reasons that stand there.
-- helpers: to_lane, lane_score, note_class, tell_news, envelope_target
local function make_job(prefix, id, sealed, job, now_ms, turn, wakes, helpers)
  job.sequence = redis.call('INCR', prefix .. 'seq')
  if redis.call('HEXISTS', prefix .. 'classes', job.class) == 0 then
    helpers.note_class(prefix, prefix .. 'classes', job.class, helpers.envelope_target(sealed), now_ms, helpers)
  end
  local wake = helpers.to_lane(prefix, id, job, turn, helpers.lane_score)
  local words = { prefix .. 'job:' .. id, string.sub(sealed, 1, 4) .. struct.pack('>I6I6', job.sequence, now_ms) .. string.sub(sealed, 17) }
  if job.unique then words[3], words[4] = prefix .. 'unique:' .. job.unique, id end
  redis.call('MSET', unpack(words))
  if wake then wakes[wake] = true end
  if helpers.events then table.insert(helpers.events, { 'created', id, job.name, 'waiting' }) end
end
