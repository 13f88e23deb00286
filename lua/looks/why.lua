#!lua flags=no-writes
-- What is known of a job, and why it may not run: pauses, limits with some of their holders, the jobs before
-- it, its parents, and at most 200 of the live workers. Also the jobs that wait for it or may still read its
-- result.
--
-- HEAD core/call
-- KEYS
--   job      string  job:<id>, the envelope or its tombstone
--   run      string  run:<id>
--   needs    set     needs:<id>, the jobs that it waits for
--   feeds    set     feeds:<id>, the jobs that wait for it
--   heirs    set     heirs:<id>, those that were told of its end and may read its result
--   due      zset    sequence and id by due_ms
--   active   zset    id by lease deadline (ms)
--   dead     zset    id by time
--   done     zset    id by time
--   paused   hash    pauses
--   limits   hash    definitions of limits
--   parked   hash    lane -> the limit that it waits for
--   rest     zset    lanes and classes by the time (ms) at which their rate window or pause ends
--   workers  zset    incarnation by the time (ms) until which it is taken for alive
--   worker_settings  hash    pauses of workers
-- ARGV
--   id       the job
-- REPLY srv_us, state, fence, time (ms: due, end of the lease, death or finish; 0 = none); name, key,
--       priority, what it requires of a worker as JSON; fields of `run` with their values; pauses: name,
--       until_ms, ...; for each limit that it counts against: see limit_use; the end of its lane's rest (ms,
--       0 = none), how many jobs of its lane come first, how many jobs it waits for, and of up to 10 of these
--       id and state; for each worker: incarnation, until_ms, last heartbeat, until_ms of its pause (-1 =
--       none); how many jobs wait for it or may read its result, and of up to 10 of these id and state
-- USES core/call: check_types, server_us
--      core/envelope: envelope_cost, envelope_open, envelope_target, job_head
--      core/job: state_of
--      core/lane: due_member
--      core/run: run_open
--      looks/looks: limit_use, pauses_on

check_types({ due, active, dead, done, rest, workers }, { sweep, paused, limits, parked, worker_settings },
  {}, { job, run })
local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local raw = redis.call('GET', job) or ''
local opened = envelope_open(raw)
local state, fence = state_of(prefix, opened, id)
local index = ({ delayed = due, active = active, dead = dead, finished = done })[state]
local at_ms = index and redis.call('ZSCORE', index, index == due and due_member(opened.sequence, id) or id)
  or 0
local about, ran, pauses, used, position, needed, living = { '', '', 0, '' }, {}, {}, {}, { 0, 0, 0 }, {}, {}
for name, value in pairs(run_open(run) or {}) do
  if name == 'owner' or name == 'error' or name == 'failures' or name == 'crashes' then
    ran[#ran + 1], ran[#ran + 2] = name, value
  end
end
if opened and opened.kind == 'J' then
  local key = string.sub(opened.lane, #opened.class + 2)
  about = { opened.name, key, opened.priority, envelope_target(raw) }
  pauses = pauses_on({ '*', redis.call('HGET', paused, '*'), opened.name,
    redis.call('HGET', paused, opened.name) }, now_ms)
  local own = redis.call('HMGET', limits, 'n:' .. opened.name, 'k:' .. key, 'k:*')
  local cost = envelope_cost(raw)
  if own[1] then used[1] = limit_use(prefix, 'n:' .. opened.name, own[1], now_ms, cost, 5) end
  local of_key = key ~= '' and (own[2] or own[3])
  if of_key then used[#used + 1] = limit_use(prefix, 'k:' .. key, of_key, now_ms, cost, 5, not own[2]) end
  local resting = redis.call('HGET', parked, opened.lane) == 'rest'
    and redis.call('ZSCORE', rest, 'l:' .. opened.lane)
  position = { tonumber(resting or 0), redis.call('ZRANK', prefix .. 'lane:' .. opened.lane, id) or 0,
    redis.call('SCARD', needs) }
  for _, parent in ipairs(redis.call('SRANDMEMBER', needs, 10)) do
    needed[#needed + 1] = parent
    needed[#needed + 1] = state_of(prefix, job_head(prefix .. 'job:' .. parent), parent)
  end
end
-- A member of `feeds` that begins with > leads to the callbacks of the job, and is no child.
local children, some_children = { redis.call('SCARD', feeds) + redis.call('SCARD', heirs) }, {}
for _, key in ipairs({ feeds, heirs }) do
  for _, child in ipairs(redis.call('SRANDMEMBER', key, 10)) do
    if string.sub(child, 1, 1) == '>' then
      children[1] = children[1] - 1
    elseif #some_children < 20 then
      some_children[#some_children + 1] = child
      some_children[#some_children + 1] = state_of(prefix, job_head(prefix .. 'job:' .. child), child)
    end
  end
end
children[2] = some_children
local lives = redis.call('ZRANGE', workers, string.format('(%d', now_ms), '+inf', 'BYSCORE', 'LIMIT', 0, 200,
  'WITHSCORES')
for at = 1, #lives, 2 do
  local beat = redis.pcall('GET', prefix .. 'worker:' .. lives[at]) or ''
  if type(beat) == 'table' then beat = '0 0 0 0 ' .. beat.err end
  local name = string.match(beat, '"name":"([^"]*)"')
  local pause = name and redis.call('HGET', worker_settings, 'p:' .. name)
  local rests = pause and pauses_on({ name, pause }, now_ms) or {}
  living[#living + 1] = { lives[at], lives[at + 1], beat, rests[2] or -1 }
end
return { srv_us, state, fence, tonumber(at_ms), about, ran, pauses, used, position, needed, living, children }
