-- The script's one clock: microseconds of the server.
local function server_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
