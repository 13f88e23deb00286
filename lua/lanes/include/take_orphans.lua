-- Take away the leases of workers that have stopped beating (orphans.lua), of one page of `active`. `reap` takes one of them: kind, fence,
-- nonce and crashes. Returns what was taken, 5 values each, and whether the pass goes on.
-- keys: sweep, workers, active
local function take_orphans(prefix, keys, now_ms, limit, reap)
  local kept = redis.call('HMGET', keys.sweep, 'no_orphans_before_ms', 'orphans_until_ms', 'orphans_from', 'orphans_after', 'beat_ttl_ms',
    'last_beat_ms')
  -- A call that was on its way when the server stood still arrives before the first beat that could tell of it (beat.lua).
  local stalled = now_ms - tonumber(kept[6] or now_ms) > tonumber(kept[5] or 0) / 2
  -- Who has stopped since the pass began is for the next one.
  local until_ms = string.format('%d', math.min(tonumber(kept[2] or now_ms), now_ms))
  local gone, shown, some = {}, {}, false
  if not stalled and now_ms >= tonumber(kept[1] or 0) then -- anchor: orphans-are-left-after-a-stall
    for _, incarnation in ipairs(redis.call('ZRANGE', keys.workers, '-inf', '(' .. until_ms, 'BYSCORE', 'LIMIT', 0, 100)) do
      local ttl_ms, lease_ms = string.match(redis.call('GET', prefix .. 'worker:' .. incarnation) or '', '^%d+ (%d+) (%d+)')
      -- A beat that is forgotten is older than any lease of its worker.
      lease_ms, ttl_ms = tonumber(lease_ms or 0), tonumber(ttl_ms or 0)
      gone[incarnation], some = { more_ms = lease_ms - ttl_ms, lease_ms = lease_ms }, true
    end
  end
  if not some then return {}, false end
  -- On from the last lease that was looked at, or, where that has ended or was renewed, from all that had its score.
  local rank, page = kept[4] and redis.call('ZSCORE', keys.active, kept[4]) == kept[3] and redis.call('ZRANK', keys.active, kept[4]), nil
  if rank then
    page = redis.call('ZRANGE', keys.active, rank + 1, rank + limit, 'WITHSCORES')
  else
    page = redis.call('ZRANGE', keys.active, kept[3] or '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  end
  local taken = {}
  for at = 1, #page, 2 do
    local id, nonce = page[at], redis.call('HGET', prefix .. 'run:' .. page[at], 'nonce') or ''
    local incarnation = string.match(nonce, '^([^:]+):')
    local worker, deadline_ms = gone[incarnation], tonumber(page[at + 1])
    -- Its last claim or renewal was a lease's length before its end.
    if worker and deadline_ms >= now_ms + worker.more_ms then -- anchor: renewal-shows-life
      shown[incarnation] = math.max(shown[incarnation] or 0, deadline_ms - worker.more_ms)
    elseif worker then
      local kind, fence, token, crashes = unpack(reap(id))
      redis.call('ZREM', keys.active, id)
      for _, field in ipairs(kind ~= 'ended' and { kind, id, fence, token, crashes } or {}) do taken[#taken + 1] = field end
    end
  end
  for incarnation, alive_ms in pairs(shown) do
    redis.call('ZADD', keys.workers, 'XX', 'GT', alive_ms, incarnation)
    redis.call('PEXPIREAT', prefix .. 'worker:' .. incarnation, alive_ms + gone[incarnation].lease_ms + 60000, 'GT')
  end
  local full = #page == 2 * limit
  if full then
    redis.call('HSET', keys.sweep, 'orphans_until_ms', until_ms, 'orphans_from', page[#page], 'orphans_after', page[#page - 1])
  else
    redis.call('HDEL', keys.sweep, 'orphans_until_ms', 'orphans_from', 'orphans_after')
    for incarnation in pairs(gone) do
      if tonumber(redis.call('ZSCORE', keys.workers, incarnation)) < tonumber(until_ms) then redis.call('ZREM', keys.workers, incarnation) end
    end
  end
  return taken, full
end
