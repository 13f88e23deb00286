#!lua flags=allow-oom
-- End dedup windows 20 s from now, if their job has opened them (rule 23). An enqueue that is on its way
-- meets them until then. Repeating the call makes no window longer.
--
-- HEAD core/call
-- KEYS
--   windows  1 for each item: dedup:<key>
-- ARGV
--   items    1 for each item: id of the job
-- REPLY srv_us, how many of the windows were open
-- USES core/call: check_types, server_us

local windows = {}
for at = 1, #ARGV - 2 do windows[at] = KEYS[1 + at] end
check_types({}, { sweep }, {}, windows)
local srv_us = server_us(now_ms, sweep)
local until_ms, open = math.floor(srv_us / 1000) + LATE_COPY_MS, 0
for at, window in ipairs(windows) do
  if redis.call('GET', window) == ARGV[2 + at] then
    redis.call('PEXPIREAT', window, string.format('%d', until_ms), 'LT')
    open = open + 1
  end
end
return { srv_us, open }
