-- Let a new job wait for its parents (rule 25); its envelope is written after this. Cut off in between, the end of a parent finds an
-- entry without a job and clears it away. A parent that is lost already is told by the next sweep like one that is lost later.
local function block_job(prefix, id, waits_for, lost, now_ms)
  redis.call('SADD', prefix .. 'feeding', unpack(waits_for))
  for _, parent in ipairs(waits_for) do redis.call('SADD', prefix .. 'feeds:' .. parent, id) end
  redis.call('SADD', prefix .. 'needs:' .. id, unpack(waits_for))
  redis.call('ZADD', prefix .. 'blocked', now_ms, id)
  for _, parent in ipairs(lost) do redis.call('ZADD', prefix .. 'handing', now_ms, '-' .. parent) end
end
