-- Take one lease away: its token dies, and the job goes back to the head of its line or, after too many crashes, to the dead (rule 12).
-- What a foreign client has moved elsewhere meanwhile stays there. Returns reaped | buried | ended (only its index entry was left), fence,
-- nonce ('-' where there was none any more) and crashes.
-- helpers: error_note, foreign_end, free_held, tell_ended, events
local function reap_foreign(prefix, id, now_ms, model, helpers)
  local run, job = prefix .. 'run:' .. id, model.read(id)
  local state = redis.call('HMGET', run, 'fence', 'nonce', 'crashes', 'marked', 'limits', 'owner', 'outcome', 'error', 'taken', 'ending',
    'value', 'took_ms', 'ended')
  local fence, nonce, crashes = state[1] or '0', state[2] or '', tonumber(state[3] or 0)
  local place, token = model.place(id), nonce ~= '' and fence .. ':' .. nonce or state[13] or ''
  -- Nor what a foreign client runs by now.
  local here = (place == 'active' or place == nil) and not (model.locked(id) and not model.mine(id, token))
  helpers.free_held(prefix, id, state[5])
  if nonce == '' then
    -- An end that was cut off behind its tombstone: the rest of it is done here.
    local kind, due_ms, failures = string.match(state[10] or '', '^(%a+) (%d+) (%d+)$')
    if state[9] == fence or not kind then
      if here and job then model.back(id, job, true, true) end
    else
      helpers.foreign_end(prefix, model, { id = id, job = job or { kind = 'gone', name = '', failures = 0, attempts = 1, body = '' }, kind = kind,
        due_ms = tonumber(due_ms), failures = tonumber(failures), outcome = state[7], error = state[8], value = state[11], took_ms = state[12], token = token }, now_ms,
        true)
    end
    return { 'ended', fence, '-', crashes }
  end
  -- The first crash is counted and free; after it only a lease that was marked as started is charged.
  if crashes == 0 or state[4] == fence .. ':' .. nonce then crashes = crashes + 1 end
  local text = 'the worker ' .. (state[6] or '') .. ' was lost'
  local note = helpers.error_note(run, now_ms, fence, 'lost', text, '')
  local name = job and job.name or ''
  -- Where the format has no bound for crashes: three, as Lanes has it unless told otherwise.
  local crashes_max = job and job.crashes_max or 3
  if here and job and (job.kind ~= 'J' or crashes >= crashes_max) then
    local reason = job.kind ~= 'J' and (job.why or 'corrupt') or string.format('crashed %d times, %d are allowed', crashes, crashes_max - 1)
    note[2] = reason
    redis.call('HSET', run, 'nonce', '', 'taken', '', 'outcome', 'buried', 'crashes', crashes, 'limits', '', 'ending',
      string.format('bury 0 %d', job.failures or 0), unpack(note))
    redis.call('PEXPIREAT', run, now_ms + 604800000)
    if job.kind == 'J' then
      model.bury(id, job, { error = reason, trace = '', charge = false, failures = job.failures })
    else
      model.set_aside(id, nil, reason)
    end
    redis.call('HINCRBY', prefix .. 'stats', 'buried', 1)
    helpers.tell_ended(prefix, id)
    if helpers.events then table.insert(helpers.events, { 'buried', id, name, reason }) end
    return { 'buried', fence, nonce, crashes }
  end
  -- `ended` and `outcome` are those of the lease before this one: they still answer its late copies (rule 5).
  redis.call('HSET', run, 'nonce', '', 'taken', fence, 'crashes', crashes, 'limits', '', unpack(note))
  -- A foreign client may run what goes on, and tells us nothing: no key of ours stays for ever.
  redis.call('PEXPIREAT', run, now_ms + 604800000)
  -- Of a claim that was cut off before its record the wire may have taken a half: it looks before it adds.
  local record = redis.call('GET', prefix .. 'claim:' .. (string.match(nonce, '^[^:]+') or ''))
  local counter, known = tonumber(string.match(nonce, '%d+$')), tonumber(string.match(record or '', '^%d+'))
  if here and job then model.back(id, job, true, not (counter and known and known >= counter)) end
  if helpers.events then table.insert(helpers.events, { 'reaped', id, name, state[6] or '' }) end
  return { 'reaped', fence, nonce, crashes }
end
