-- What a token may still do (rules 5 and 6): 'held'; 'repeated' and the outcome that ended it; or 'stale', with `cancelled` where that
-- was why. A lease that a foreign client has taken over is held no more. The third value is the run: limits, ending, value and what is
-- to be told of it; the fourth when the lease ends (ms), nil where `active` does not have it.
local function foreign_token(prefix, format, id, fence, nonce)
  local key = prefix .. 'run:' .. id
  local words = redis.pcall('HMGET', key, 'fence', 'nonce', 'ended', 'outcome', 'limits', 'ending', 'value', 'took_ms', 'error')
  if words.err then
    if string.sub(words.err, 1, 9) ~= 'WRONGTYPE' then error(words) end
    error({ err = 'WRONGTYPE the key ' .. key .. ' is a ' .. redis.call('TYPE', key).ok .. ', it must be a hash' })
  end
  local run = { limits = words[5] or '', ending = words[6] or '', value = words[7], took_ms = words[8], error = words[9] }
  local token, deadline_ms = fence .. ':' .. nonce, tonumber(redis.call('ZSCORE', prefix .. 'active', id) or nil)
  if words[1] == fence and words[2] == nonce and deadline_ms and format.mine(id, token) then return 'held', '', run, deadline_ms end
  if words[3] == token then return 'repeated', words[4] or '', run, deadline_ms end
  return 'stale', words[4] == 'cancelled' and 'cancelled' or '', run, deadline_ms
end
