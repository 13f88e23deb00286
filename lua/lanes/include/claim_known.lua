-- What an earlier copy of a claim leased, as far as it is still held (rule 4): kind and jobs, 7 values each; nil where there was none.
-- The ids that it buried are added to `corrupt`.
local function claim_known(prefix, active, record, nonce, counter, corrupt)
  local words, jobs = {}, {}
  for word in string.gmatch(redis.call('GET', record) or '', '%S+') do words[#words + 1] = word end
  if not words[1] or tonumber(words[1]) < tonumber(counter) then return nil, jobs end
  if words[1] ~= counter then return 'stale', jobs end -- anchor: older-claim-is-stale
  for at = 2, #words, 2 do
    local id = words[at]
    if words[at + 1] == 'corrupt' then corrupt[#corrupt + 1] = id end
    local run = redis.call('HMGET', prefix .. 'run:' .. id, 'fence', 'nonce', 'claims', 'failures', 'crashes')
    local deadline_ms = redis.call('ZSCORE', active, id)
    local raw = redis.call('GET', prefix .. 'job:' .. id) -- anchor: repeated-claim-returns-each-payload
    if raw and deadline_ms and run[1] == words[at + 1] and run[2] == nonce then
      for _, field in ipairs({ id, tonumber(run[1]), tonumber(deadline_ms), tonumber(run[3]), tonumber(run[4] or 0), tonumber(run[5] or 0), raw }) do
        jobs[#jobs + 1] = field
      end
    end
  end
  return 'repeated', jobs
end
