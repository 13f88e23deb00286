-- Wake those who wait for the end of a job, each by a stream of its own that its look has made (look.lua). What cannot be told is found
-- by the next look, so nothing here may fail the script that has ended the job.
local function tell_ended(prefix, id)
  local key = prefix .. 'waits:' .. id
  local tokens = redis.pcall('GET', key)
  if type(tokens) ~= 'string' then return end
  for token in string.gmatch(tokens, '%S+') do
    redis.pcall('XADD', prefix .. 'wait:' .. token, 'NOMKSTREAM', 'MAXLEN', '~', 1000, '*', 'id', id)
  end
  redis.pcall('DEL', key)
end
