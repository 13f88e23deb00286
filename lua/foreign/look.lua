#!lua flags=allow-oom
-- What became of a job; with a token, one that has not ended is waited for: its end is told to the stream wait:<token>, if it is one
-- of our workers that ends it. A foreign one tells nobody, so who waits looks again after a moment.
--
-- KEYS
--   sweep  hash    state of the sweeps
--   stats  hash    counters
--   run    hash    run:<id>
--   waits  string  waits:<id>, the tokens that wait for its end
--   wait   stream  wait:<token>, the ids that have ended
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of our own keys
--   root      what the foreign keys begin with
--   queue     name of the queue
--   layout    layout of the format, '' = its only one
--   settings  what else the format wants to know
--   id        the job
--   token     16 hex digits; '' = only look
-- REPLY srv_us, pending | finished | discarded | dead | gone, fence (0: none is compared), ended_ms (0 = not known), record, error

local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local model = wire(root, prefix, queue, layout, settings, now_ms)
check_types({}, { stats, run }, {}, { waits })
model.check()

local state = place_of(run, id, model)
-- Between two structures, as formats that move a job in two steps leave it for a moment.
local between = state == 'gone' and model.read(id)
if state == 'waiting' or state == 'delayed' or state == 'active' or between and between.kind == 'J' then
  if token ~= '' then
    local tokens = redis.call('GET', waits) or ''
    -- As in lua/lanes/look.lua: a stream is made by its reader alone.
    if redis.call('EXISTS', wait) == 0 then redis.call('XADD', wait, '0-1', 'id', '') end
    redis.call('PEXPIREAT', wait, now_ms + 60000)
    if not string.find(tokens, token, 1, true) then tokens = string.sub(tokens .. ' ' .. token, -1700) end
    redis.call('SET', waits, tokens, 'PXAT', now_ms + 30000)
    redis.call('HSET', stats, 'waits_ms', string.format('%d', now_ms + 30000))
  end
  return { srv_us, 'pending', '0', 0, '', '' }
end
-- What has ended without its work is told as discarded.
local shown = { cancelled = 'discarded', discarded = 'discarded', skipped = 'discarded', rerouted = 'discarded' }
if shown[state] then return { srv_us, shown[state], '0', 0, '', '' } end
local over = model.ended(id)
if over then
  return { srv_us, over.state, '0', math.floor(over.ended_ms or 0), over.record or '', over.error or '' }
end
if state == 'dead' then return { srv_us, 'dead', '0', 0, '', redis.call('HGET', run, 'error') or '' } end
return { srv_us, state == 'finished' and 'finished' or 'gone', '0', 0, '', '' }
