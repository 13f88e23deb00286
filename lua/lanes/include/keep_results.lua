-- Keep the results of parents that have ended before their child comes (rule 25), until `let_go` finds that it has ended too. `found`:
-- pairs of parent and the time until which its result lives. Cut off before the child is made, the next look lets them go.
local function keep_results(prefix, child, found, now_ms)
  for at = 1, #found, 2 do
    local parent, until_ms = found[at], found[at + 1]
    redis.call('ZADD', prefix .. 'keeping', 'NX', now_ms, parent)
    redis.call('SADD', prefix .. 'heirs:' .. parent, child)
    if until_ms < 281474976710656 then
      redis.call('PEXPIREAT', prefix .. 'result:' .. parent, string.format('%d', until_ms + 281474976710656))
    end
  end
end
