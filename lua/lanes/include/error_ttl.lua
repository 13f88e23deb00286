-- How long the error of a dead job is kept, ms (0: not at all). `job` is its opened envelope, or a table without fields.
local function error_ttl(prefix, id, job)
  if not job.options_at then return 86400000 end
  local key = prefix .. 'job:' .. id
  local high, low = string.byte(redis.call('GETRANGE', key, job.options_at - 1, job.options_at), 1, 2)
  local length = (high or 0) * 256 + (low or 0)
  local read, options = pcall(cjson.decode, redis.call('GETRANGE', key, job.options_at + 1, job.options_at + length))
  return read and type(options) == 'table' and tonumber(options.error_ttl_ms) or 86400000
end
