-- Entries of a rate's window that a clock which stepped back has left ahead of now count from now on, once (rule 10): to take them for
-- now in each look would slide along with the clock.
local function rate_back(prefix, limit, ahead, now_ms)
  for at = 1, #(ahead or {}), PIECE / 2 do
    local words = {}
    for place = at, math.min(at + PIECE / 2 - 1, #ahead) do words[#words + 1], words[#words + 2] = now_ms, ahead[place] end
    redis.call('ZADD', prefix .. 'rate:' .. limit, 'XX', unpack(words))
  end
end
