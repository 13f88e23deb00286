-- The history of a queue: how its jobs have ended, for whoever asks later (set_history.lua). Off unless it is
-- set.
-- RARELY envelope_open, envelope_options, envelope_payload, history_rule, run_open, run_pack, take_back
-- USES core/envelope: envelope_layout, envelope_open, envelope_options
--      core/run: run_open, run_pack

-- What a script tells of what it does: `keep`, how many events are kept, and `history`, the setting of the
-- history. Nil where the queue keeps neither, as most do.
local function notes_kept(keep, history)
  return (keep or history) and { keep = keep, history = history } or nil
end

-- The setting of a history as a table: keep (entries), age_ms (0 = any age), payload_bytes (the longest
-- payload that is kept, 0 = none), names (a set; nil = all names).
local function history_rule(setting)
  local keep, age_ms, payload_bytes, named = string.match(setting, '^(%d+) (%d+) (%d+)(.*)$')
  local names
  for name in string.gmatch(named or '', '%S+') do
    names = names or {}
    names[name] = true
  end
  return { keep = tonumber(keep or 0), age_ms = tonumber(age_ms or 0),
    payload_bytes = tonumber(payload_bytes or 0), names = names }
end

-- The payload of a whole envelope.
local function envelope_payload(raw)
  local flags, _, _, _, class_at, class_length, key_length, name_length, unique_length = envelope_layout(raw)
  local at = class_at + 1 + class_length + key_length + name_length + unique_length
  if math.floor(flags / 8) % 2 == 1 and #raw > at then at = at + 2 + struct.unpack('>H', raw, at) end
  return string.sub(raw, at)
end

-- Take the entry back that a call has left which was cut off before it ended the job. `past`, which the run
-- has of it: its time, fence and outcome. A dead job that ends once more has died as its entry says.
local function take_back(prefix, id, past, outcome)
  local at_ms, fence, ended = string.match(past, '^(%d+) (%d+) (%a+)$')
  if not at_ms or ended == 'dead' and outcome ~= 'dead' and redis.call('ZSCORE', prefix .. 'dead', id) then
    return
  end
  local start = table.concat({ id, fence, ended, '' }, '\0')
  for _, entry in ipairs(redis.pcall('ZRANGE', prefix .. 'history', at_ms, at_ms, 'BYSCORE')) do
    if string.sub(entry, 1, #start) == start then redis.pcall('ZREM', prefix .. 'history', entry) end
  end
end

-- What stays of `past` in the run of a dead job that goes back to the others: nothing of its death, which was
-- its end.
local function past_beyond_death(past)
  -- anchor: death-that-came-true-stays-told
  return past and not string.find(past, ' dead$') and past or ''
end

-- Write how a job ends into the history, if there is one and it means the job's name. It comes before the
-- write that ends the job, whose envelope it reads. A call that was cut off in between has ended nothing: the
-- run has noted its entry before (`past`). So the copy, or whatever ends the job later, takes it back. A call
-- that ends nothing writes nothing. An error here must not fail the script, because no job depends on it. Its
-- fields are described in engine/models/lanes_keys.py.
-- why: the error, nil = none; failures: nil = as the run has them
local function note_end(prefix, events, id, outcome, now_ms, why, failures)
  if not events or not events.history then return end
  events.rule = events.rule or history_rule(events.history)
  local rule, raw = events.rule, redis.pcall('GET', prefix .. 'job:' .. id)
  if type(raw) == 'table' then raw = '' end
  local job = raw and (envelope_open(raw) or { kind = 'corrupt' })
  if not job or job.kind == 'T' or rule.names and not rule.names[job.name or ''] then return end
  local run_key = prefix .. 'run:' .. id
  local readable, run = pcall(run_open, run_key)
  run = readable and run or {}
  -- A call that was cut off may have cleared one of the two.
  local held = (run.nonce or '') ~= '' or type(redis.pcall('ZSCORE', prefix .. 'active', id)) == 'string'
  local payload = job.kind == 'J' and envelope_payload(raw) or raw
  local kept = rule.payload_bytes > 0 and #payload <= rule.payload_bytes
  local serializer = kept and job.options_at and (envelope_options(raw) or {}).serializer
  local fence = string.format('%d', tonumber(run.fence or 0))
  -- anchor: end-that-was-cut-off-is-taken-back
  if run.past then take_back(prefix, id, run.past, outcome) end
  if readable then
    run.past = string.format('%d %s %s', now_ms, fence, outcome)
    redis.call('SET', run_key, run_pack(run))
  end
  redis.pcall('ZADD', prefix .. 'history', now_ms, table.concat({ id, fence, outcome, job.name or '',
    string.sub(job.lane or '', #(job.class or '') + 2), job.unique or '', run.owner or '',
    string.format('%d %d %s %d %d %d %d', job.enqueued_ms or 0, job.due_ms or 0, held and fence or '0',
      tonumber(run.claims or 0), tonumber(failures or run.failures or 0), tonumber(run.crashes or 0),
      #payload),
    string.sub(string.gsub(why or '', '%z', ' '), 1, 500), kept and (serializer or 'json') or '',
    kept and payload or '' }, '\0'))
end

-- Trim the history to its count and age, at most 5,000 entries a call. Returns whether more are over the
-- bounds.
local function trim_history(prefix, events, now_ms)
  local history = prefix .. 'history'
  local size = events and events.history and redis.pcall('ZCARD', history)
  if type(size) ~= 'number' or size == 0 then return false end
  local rule = history_rule(events.history)
  local over = size - rule.keep
  if rule.age_ms > 0 then
    over = math.max(over, redis.call('ZCOUNT', history, '-inf',
      '(' .. string.format('%d', now_ms - rule.age_ms)))
  end
  -- anchor: history-is-bounded
  if over > 0 then redis.call('ZREMRANGEBYRANK', history, 0, math.min(over, 5000) - 1) end
  return over > 5000
end
