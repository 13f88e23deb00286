-- The job has ended or is dead: its unique key comes free, if it is still its own (rule 23).
local function free_unique(prefix, job, id)
  if not job.unique then return end
  local key = prefix .. 'unique:' .. job.unique
  if redis.call('GET', key) == id then redis.call('DEL', key) end
end
