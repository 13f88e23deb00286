#!lua flags=no-writes
-- The parents and children of jobs, as far as the queue knows them. Stops after 2,000 of them: the reply may
-- have fewer items than the call asks for, but at least one.
--
-- HEAD core/call
-- KEYS
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   done     zset    id by time
--   items    1 for each item: job:<id>
-- ARGV
--   items    2 for each item: id, and the cursor of a page of its children ('' = the first page)
-- REPLY srv_us, for each item: state, name, its parents, how many of them it lacks as a dead job that was
--       buried with one of them (1 where a revival was cut off), some of its children, the cursor of the next
--       page ('' = there is none)
-- USES children/children: lacked_by, some_children
--      core/call: check_types, server_us
--      core/envelope: job_head, options_of
--      core/job: state_of
--      core/run: run_look

check_types({ active, dead, done }, { sweep }, {})
local reply, told = { server_us(now_ms, sweep) }, 0
for at = 1, #KEYS - 4 do
  local id, cursor, job = ARGV[1 + 2 * at], ARGV[2 + 2 * at], job_head(KEYS[4 + at])
  local state, parents, lacks = state_of(prefix, job, id), {}, 0
  if job and job.kind == 'J' then
    parents = (options_of(KEYS[4 + at], job) or {}).needs or {}
    local since_ms = parents[1] and redis.call('ZSCORE', dead, id)
    -- It came back, and only its entry in `dead` is left over, for a revival to complete.
    local back_ms = since_ms and run_look(prefix .. 'run:' .. id, 'requeued_ms')[1]
    local back = since_ms and tonumber(back_ms or 0) > tonumber(since_ms)
    lacks = back and 1 or state == 'dead' and #lacked_by(prefix, id, job) or 0
  end
  local children, next_page = some_children(prefix, id, cursor)
  reply[#reply + 1] = { state, job and job.name or '', parents, lacks, children, next_page }
  told = told + #parents + #children
  if told >= 2000 then break end
end
return reply
