-- The script's one clock: microseconds of the server, or the time that a test gave, on queues that were made for tests.
local function server_us(given_ms, sweep)
  if given_ms ~= '' then
    if redis.call('HGET', sweep, 'test_clock') ~= '1' then
      error('IRONCLAIM now_ms is for queues created for tests')
    end
    return tonumber(given_ms) * 1000
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
