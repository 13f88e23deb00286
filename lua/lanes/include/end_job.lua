-- End a job by hand (rule 26): its token dies first, then a tombstone that outlives every late copy takes the place of its envelope
-- (rule 3), then what it held comes free, and its index entries go last. Cut off in between, what is left leads to a tombstone, and
-- whatever finds it drops it: a claim, a promotion, a sweep.
-- job: what envelope_open made of it; ending: outcome (2 discarded, 7 cancelled), op_id, not_after_ms; `wakes` gains the lists to push.
-- helpers: due_member, free_unique, free_slots, ready_lane, tell_ended
local function end_job(prefix, job, id, ending, now_ms, turn, wakes, helpers)
  local run, active = prefix .. 'run:' .. id, prefix .. 'active'
  local kept = redis.call('HMGET', run, 'fence', 'limits', 'seal')
  if redis.call('ZSCORE', active, id) then redis.call('HSET', run, 'nonce', '') end -- anchor: cancel-revokes-the-lease
  -- Who finds what a call that was cut off has left learns from the seal which unique key is to come free (drop_run).
  if job.unique and not kept[3] then
    redis.call('HSET', run, 'seal', job.enqueue_nonce .. struct.pack('>I6', job.not_after_ms) .. job.unique)
  end
  if job.kind ~= 'T' then
    local tombstone = struct.pack('>BBBc8I8Bc0', 1, 84, ending.outcome, job.enqueue_nonce or string.rep('\0', 8), tonumber(kept[1] or 0),
      #ending.op_id, ending.op_id)
    redis.call('SET', prefix .. 'job:' .. id, tombstone, 'PXAT', math.max(job.not_after_ms or 0, ending.not_after_ms, now_ms) + 20000)
  end
  -- Of a job that a copy which was cut off has ended only the seal still knows its key.
  local key = job.unique or kept[3] and #kept[3] > 14 and string.sub(kept[3], 15) or nil
  helpers.free_unique(prefix, { unique = key }, id)
  -- Those that wait for it hear of it from the next sweep (rule 25).
  if redis.call('SISMEMBER', prefix .. 'feeding', id) == 1 then redis.call('ZADD', prefix .. 'handing', now_ms, '-' .. id) end
  if kept[2] and kept[2] ~= '' then helpers.free_slots(prefix, kept[2], id, turn, wakes, helpers) end
  redis.call('DEL', run, prefix .. 'result:' .. id, prefix .. 'needs:' .. id)
  redis.call('ZREM', prefix .. 'blocked', id)
  if job.kind == 'J' then
    redis.call('ZREM', prefix .. 'due', helpers.due_member(job.sequence, id))
    redis.call('ZREM', prefix .. 'lane:' .. job.lane, id)
  end
  redis.call('ZREM', active, id)
  redis.call('ZREM', prefix .. 'dead', id)
  helpers.tell_ended(prefix, id)
  if job.kind ~= 'T' and helpers.events then
    table.insert(helpers.events, { ending.outcome == 7 and 'cancelled' or 'discarded', id, job.name })
  end
end
