-- End a job by hand (rule 26): its token dies first, under a tombstone that outlives every late copy (rule 3), then the wire forgets it, and
-- whoever waits for its end hears of it. Cut off in between, the same call finds its own tombstone and does the rest.
-- job: what the wire has read, nil where nothing is there; ending: outcome (cancelled | discarded), op_id, not_after_ms
-- helpers: free_held, tell_ended, events
local function end_by_hand(prefix, id, job, state, ending, now_ms, model, helpers)
  local run = prefix .. 'run:' .. id
  if state == 'finished' then
    -- Its tombstone stays: it still answers a late copy of the finish.
    model.remove(id, 'done')
    return
  end
  helpers.free_held(prefix, id, redis.call('HGET', run, 'limits'))
  redis.call('HSET', run, 'nonce', '', 'ended', ending.op_id, 'outcome', ending.outcome, 'limits', '',
    'ended_ms', string.format('%d', now_ms))
  redis.call('PEXPIREAT', run, string.format('%d', math.max(ending.not_after_ms, now_ms) + 20000))
  if state == 'active' and job and job.kind == 'J' then
    model.drop(id, job, ending.outcome)
  else
    model.remove(id, state)
  end
  redis.call('ZREM', prefix .. 'active', id)
  helpers.tell_ended(prefix, id)
  if helpers.events then table.insert(helpers.events, { ending.outcome, id, job and job.name or '' }) end
end
