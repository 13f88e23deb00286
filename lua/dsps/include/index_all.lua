-- Put the clocks of living messages, as text, into the index.
local function index_all(live, clocks)
  local words = {}
  for at, clock in ipairs(clocks) do
    words[#words + 1], words[#words + 2] = clock, clock
    if #words == PIECE or at == #clocks then
      redis.call('ZADD', live, unpack(words))
      words = {}
    end
  end
end
