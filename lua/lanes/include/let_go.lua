-- Results of parents stay until none of their children waits or runs any more (rule 25). One that is kept has 2^48 ms more than its own
-- time, which it gets back here: no word but its expiry says so, hence nothing is lost with a call that was cut off. `keeping` holds the
-- parents by the time of the last look, of which this takes the `most` oldest; `heirs` of each are the children that were told of its
-- end, `feeds` those that were not. Returns whether so much was let go, or looked at in vain, that more of it may follow at once.
-- helpers: envelope_open
local function let_go(prefix, now_ms, most, helpers)
  local keeping, more_ms, looks, gone = prefix .. 'keeping', 281474976710656, 10 * most, 0
  for _, parent in ipairs(redis.call('ZRANGE', keeping, 0, most - 1)) do
    local heirs, result = prefix .. 'heirs:' .. parent, prefix .. 'result:' .. parent
    local until_ms = redis.call('PEXPIRETIME', result)
    local waits = until_ms > 0 and redis.call('EXISTS', prefix .. 'feeds:' .. parent) == 1
    while not waits and until_ms > 0 and looks > 0 do
      -- A foreign value in place of a key must not stop the sweeps.
      local child = redis.pcall('SRANDMEMBER', heirs)
      if type(child) ~= 'string' then break end
      local raw = redis.pcall('GETRANGE', prefix .. 'job:' .. child, 0, 700)
      local job = type(raw) == 'string' and helpers.envelope_open(raw)
      -- anchor: results-stay-while-a-child-lives
      waits = job and job.kind ~= 'T' and not redis.call('ZSCORE', prefix .. 'dead', child)
      if not waits then redis.call('SREM', heirs, child) end
      looks = looks - 1
    end
    if waits then
      -- It has ended once more since it was kept.
      if until_ms < more_ms then redis.call('PEXPIREAT', result, string.format('%d', until_ms + more_ms)) end
      redis.call('ZADD', keeping, now_ms, parent)
    elseif until_ms <= 0 or redis.call('EXISTS', heirs) == 0 then
      if until_ms >= more_ms then redis.call('PEXPIREAT', result, string.format('%d', until_ms - more_ms)) end
      redis.call('UNLINK', heirs)
      redis.call('ZREM', keeping, parent)
      gone = gone + 1
    end
  end
  return looks == 0 or 2 * gone >= most
end
