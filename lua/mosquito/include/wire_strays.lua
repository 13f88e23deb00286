-- Jobs in hand of runners that are gone. HEAD's overseers name themselves in the hash and beat in `overseers`, every 20 s: one that was not heard
-- for 100 s is dead, by their own rule. v2 says nothing: its entries come back only after `adopt_after_ms`, where that is set. Ids without a
-- hash can never run: they leave `pending`.
local function wire_strays(w, at)
  local keys, places, prefix = at.keys, at.places, at.prefix
  -- Since when an entry of nobody is known to be there: for a list the first look tells.
  local function since(id)
    local known = redis.call('ZSCORE', prefix .. 'foreign', id)
    if not known then redis.call('ZADD', prefix .. 'foreign', string.format('%d', at.now_ms), id) end
    return tonumber(known or at.now_ms)
  end
  local function is_stray(id)
    local run = redis.pcall('HMGET', keys.job(id), 'type', 'overseer_id')
    if run.err or not run[1] then return true end
    if run[2] then
      local heard_s = redis.pcall('ZSCORE', at.root .. 'overseers', run[2])
      return not tonumber(type(heard_s) == 'string' and heard_s or nil) or tonumber(heard_s) < at.now_s - 100
    end
    return at.adopt_ms > 0 and since(id) + at.adopt_ms <= at.now_ms
  end

  -- At most 200 entries are looked at, from where the last look ended: those of ours may be many.
  function w.strays(most)
    local found, mark = {}, redis.call('HGET', prefix .. 'sweep', 'strays_from')
    local from = tonumber(mark or 0)
    local ids = places.page('pending', from, 200)
    local leased = #ids > 0 and redis.call('ZMSCORE', prefix .. 'active', unpack(ids)) or {}
    for i, id in ipairs(ids) do
      if #found < most and not leased[i] and is_stray(id) then found[#found + 1] = id end
    end
    -- A page with strays is looked at again: each must be seen twice.
    local to = #found > 0 and from or #ids == 200 and from + 200 or 0
    if to ~= from then redis.call('HSET', prefix .. 'sweep', 'strays_from', to) end
    -- What has stood there for a day longer than it may is gone: had it been in `pending`, it would have come back.
    if to == 0 and at.adopt_ms > 0 then
      redis.call('ZREMRANGEBYSCORE', prefix .. 'foreign', '-inf', string.format('%d', at.now_ms - at.adopt_ms - 86400000))
    end
    return found
  end
end
