#!lua flags=no-writes
-- The details of jobs. Stops after 1 MiB of envelopes: the reply may have fewer items than the call asks for,
-- but at least one.
--
-- HEAD core/call
-- KEYS
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   done     zset    id by time
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   whole    1 = with the envelope and the fields of `run`
--   items    1 for each item: id
-- REPLY srv_us, for each item: state, fence, time (ms: due, end of the lease, death or finish; 0 = none),
--       envelope, fields of `run`
-- USES core/call: check_types, server_us
--      core/envelope: job_head, look_at
--      core/job: state_of
--      core/lane: due_member
--      core/run: run_open

check_types({ due, active, dead, done }, { sweep }, {})
local reply, bytes = { server_us(now_ms, sweep) }, 0
for at = 1, (#KEYS - 5) / 2 do
  local id, job_key = ARGV[3 + at], KEYS[4 + 2 * at]
  local job = job_head(job_key)
  local state, fence = state_of(prefix, job, id)
  local index = ({ delayed = due, active = active, dead = dead, finished = done, skipped = done })[state]
  local at_ms = index and redis.call('ZSCORE', index, index == due and due_member(job.sequence, id) or id)
    or 0
  local raw, run = '', {}
  if whole == '1' then
    local size = redis.pcall('STRLEN', job_key)
    bytes = bytes + (type(size) == 'number' and size or 0)
    if bytes > REPLY_BYTES and at > 1 then break end
    if job and job.kind ~= 'T' then
      raw = type(size) == 'number' and redis.call('GET', job_key) or look_at(job_key, HEAD_LAST)
      local readable, fields = pcall(run_open, KEYS[5 + 2 * at])
      if not readable then fields = { error = 'the key ' .. KEYS[5 + 2 * at] .. ' cannot be read' } end
      for name, value in pairs(fields or {}) do run[#run + 1], run[#run + 2] = name, value end
    elseif state == 'skipped' then
      local record = redis.pcall('GET', prefix .. 'result:' .. id)
      local read, kept = pcall(cjson.decode, type(record) == 'string' and record)
      local said = read and type(kept) == 'table' and kept.error
      if type(said) == 'string' then run = { 'error', said } end
    end
  end
  reply[#reply + 1] = { state, fence, tonumber(at_ms), raw, run }
end
return reply
