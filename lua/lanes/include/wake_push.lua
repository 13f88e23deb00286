-- Rule 22: at most one marker in a wake list. It carries no job, so losing it costs one sweep interval and nothing else.
local function wake_push(wake)
  if redis.call('LLEN', wake) == 0 then redis.call('RPUSH', wake, '1') end
end
