-- Look at a few of the jobs that others wait for (rule 25): one that has ended, and did not say so, is noted in `handing`. So nothing
-- that ends a job in a new way, or loses one, can leave its children waiting for ever.
-- helpers: envelope_open, parent_fate
local function mend_feeding(prefix, now_ms, helpers)
  for _, parent in ipairs(redis.call('SRANDMEMBER', prefix .. 'feeding', 10)) do
    local job = helpers.envelope_open(redis.call('GETRANGE', prefix .. 'job:' .. parent, 0, 700))
    local fate = helpers.parent_fate(prefix, job, parent)
    if fate ~= 'open' then redis.call('ZADD', prefix .. 'handing', now_ms, (fate == 'done' and '+' or '-') .. parent) end
  end
end
