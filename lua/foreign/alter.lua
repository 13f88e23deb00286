#!lua flags=allow-oom
-- Change jobs by an admin action, each if it still is in the state that the caller saw (rules 7 and 26). A
-- running one loses its token at once; one that a foreign client holds is left alone, because that client
-- could not be notified. A requeued job has all its attempts again.
--
-- HEAD foreign/format
-- KEYS
--   active  zset    id by lease deadline (ms)
--   stats   hash    counters
--   op      string  op:<op id>, record of this call: its reply
--   items   1 for each item: run:<id>
-- ARGV
--   not_after_ms  number: server time after which this call is void
--   op_id         identity of the call, which its tombstones carry
--   action          cancel | remove | discard | requeue | run_now
--   state         waiting | blocked | delayed | active | dead | finished
--   items         1 for each item: id
-- REPLY srv_us, done | repeated | refused, for each item: done | changed | held | corrupt, the state that it
--       was in, the id of the job that has its unique key, else -
-- USES <format>: wire_locked, wire_mine, wire_read, wire_requeue, wire_run_now
--      core/call: administered, check_types
--      core/wake: append_events, wake_push
--      foreign/claim: own_words
--      foreign/ends: end_by_hand
--      foreign/format: format_now
--      foreign/ids: record_of, words_of
--      foreign/looks: place_of

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ active }, { stats }, { prefix .. 'wake' }, { op })

-- An earlier copy was cut off: the rest is done now. `redo` makes the wire functions look before they add,
-- because some jobs may have been moved already.
local redo = redis.call('GET', op) == 'begun'
local known = not redo and administered(op, not_after_ms, now_ms)
if known then return { srv_us, known, words_of(redis.call('GET', op)) } end
local results, actions, ends = {}, {}, action ~= 'requeue' and action ~= 'run_now'
for at = 1, #KEYS - 4 do
  local id, run = ARGV[10 + at], KEYS[4 + at]
  local now, _, ended = place_of(run, id, format)
  local job = wire_read(format, id)
  local mine, result = ends and ended == op_id or redo and not ends and now == 'waiting', 'done'
  if now ~= state and not mine then
    result = 'changed'
  elseif state == 'active' and not mine then
    local token = own_words(run, 'fence', 'nonce')
    local ours = token[2] and token[2] ~= '' and redis.call('ZSCORE', active, id)
      and wire_mine(format, id, token[1] .. ':' .. token[2])
    if not ours and wire_locked(format, id) then result = 'changed' end
  elseif ends and not mine and wire_locked(format, id) then
    -- A foreign client has locked it and is about to change it.
    result = 'changed'
  elseif not ends and not (job and job.kind == 'J') then
    result = 'corrupt'
  end
  if result == 'done' then actions[#actions + 1] = { id = id, run = run, job = job, at = #results + 1 } end
  for _, word in ipairs({ result, mine and state or now, '-' }) do results[#results + 1] = word end
end
local keep = redis.call('HGET', stats, 'events')
local events, wakes = keep and { keep = keep }, false
if #actions > 0 then redis.call('SET', op, 'begun', 'PXAT', not_after_ms + LATE_COPY_MS) end
for _, item in ipairs(actions) do
  local name = item.job and item.job.name or ''
  if ends then
    local outcome = action == 'cancel' and 'cancelled' or 'discarded'
    end_by_hand(prefix, item.id, item.job, state,
      { outcome = outcome, op_id = op_id, not_after_ms = not_after_ms }, now_ms, format, events)
  elseif action == 'requeue' then
    -- Only the holder of its unique key can prevent a requeue, and the format returns its id before it writes
    -- anything.
    local holder = wire_requeue(format, item.id, item.job, redo)
    if type(holder) == 'string' then
      results[item.at], results[item.at + 2] = 'held', holder
    else
      wakes = true
      if redis.call('TYPE', item.run).ok == 'hash' then
        redis.call('HSET', item.run, 'failures', 0, 'crashes', 0)
        redis.call('PERSIST', item.run)
      end
      if events then events[#events + 1] = { 'requeued', item.id, name } end
    end
  else
    wakes = true
    wire_run_now(format, item.id, item.job, redo)
    if events then events[#events + 1] = { 'promoted', item.id, name } end
  end
end
if wakes then wake_push(prefix .. 'wake') end
redis.call('SET', op, record_of(results), 'PXAT', not_after_ms + LATE_COPY_MS)
if events then append_events(prefix .. 'events', events) end
return { srv_us, 'done', results }
