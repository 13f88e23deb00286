-- What an earlier copy of a claim leased, as far as it is still held (rule 4): kind and jobs, 7 values each; nil where there was none.
-- The ids that it set aside are added to `corrupt`.
-- helpers: foreign_token
local function foreign_known(prefix, format, record, nonce, counter, corrupt, helpers)
  local words, jobs = {}, {}
  for word in string.gmatch(redis.call('GET', record) or '', '%S+') do words[#words + 1] = word end
  if not words[1] or tonumber(words[1]) < tonumber(counter) then return nil, jobs end
  if words[1] ~= counter then return 'stale', jobs end
  for at = 2, #words, 2 do
    local id, fence = words[at], words[at + 1]
    if fence == 'corrupt' then
      corrupt[#corrupt + 1] = id
    else
      local state, _, _, deadline_ms = helpers.foreign_token(prefix, format, id, fence, nonce)
      local job = state == 'held' and format.read(id)
      if job and job.kind == 'J' then
        local run = redis.call('HMGET', prefix .. 'run:' .. id, 'claims', 'crashes')
        for _, field in ipairs({ id, tonumber(fence), deadline_ms, tonumber(run[1] or 0), job.failures, tonumber(run[2] or 0), job.body }) do
          jobs[#jobs + 1] = field
        end
      end
    end
  end
  return 'repeated', jobs
end
