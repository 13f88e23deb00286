-- Take entries of `dead` away whose job has ended or is gone: a discard that was cut off has left them, with `run`. 100 a sweep, in turn,
-- from the rank `dead_from` on.
-- helpers: drop_run, free_unique
local function mend_dead(prefix, helpers)
  local dead, sweep = prefix .. 'dead', prefix .. 'sweep'
  local from = tonumber(redis.call('HGET', sweep, 'dead_from') or 0)
  local page = redis.call('ZRANGE', dead, from, from + 99)
  local stay = from
  for _, id in ipairs(page) do
    -- A foreign value in place of a job is for those to tell who come across it.
    local kind = redis.pcall('GETRANGE', prefix .. 'job:' .. id, 1, 1)
    if kind ~= '' and kind ~= 'T' then
      stay = stay + 1
    else
      if not redis.call('ZSCORE', prefix .. 'active', id) then helpers.drop_run(prefix, id, helpers) end
      redis.call('ZREM', dead, id)
    end
  end
  if #page < 100 then stay = 0 end
  if stay ~= from then redis.call('HSET', sweep, 'dead_from', stay) end
end
