-- Whether a job has ended a short time ago, so that its id is still known (rule 3), whatever the wire has kept of it.
local function foreign_over(prefix, id, now_ms)
  local run = redis.call('HMGET', prefix .. 'run:' .. id, 'nonce', 'outcome', 'ended_ms')
  if run[1] ~= '' or not run[2] or run[2] == 'retried' or run[2] == 'released' then return false end
  return tonumber(run[3] or now_ms) + 20000 >= now_ms
end
