#!lua flags=no-writes
-- Jobs in each state, and how many our workers have ever finished and buried. With classes: of the waiting ones only those in them, of
-- which the first 10,000 are looked at and all behind them counted.
--
-- KEYS
--   sweep  hash    state of the sweeps
--   stats  hash    counters
-- ARGV
--   now_ms    '' or the time of a test
--   prefix    prefix of our own keys
--   root      what the foreign keys begin with
--   queue     name of the queue
--   layout    layout of the format, '' = its only one
--   settings  what else the format wants to know
--   items     1 for each class: its name
-- REPLY srv_us, waiting, delayed, active, dead, done, finished, buried, blocked, handing

local srv_us = server_us(now_ms, sweep)
now_ms = math.floor(srv_us / 1000)
local model = wire(root, prefix, queue, layout, settings, now_ms)
check_types({}, { stats }, {})
model.check()

local reply, waiting, wanted = { srv_us }, model.count('waiting'), {}
for at = 7, #ARGV do wanted[ARGV[at]] = true end
if #ARGV > 6 and waiting > 0 then
  local others, words = 0, model.list('waiting', 0, 10000, false)
  for at = 1, #words, 2 do
    local job = model.read(words[at])
    if not (job and job.kind == 'J' and wanted[job.name]) then others = others + 1 end
  end
  waiting = math.max(0, waiting - others)
end
reply[2] = waiting
for _, state in ipairs({ 'delayed', 'active', 'dead', 'done' }) do reply[#reply + 1] = model.count(state) end
local totals = redis.call('HMGET', stats, 'finished', 'buried')
reply[#reply + 1] = tonumber(totals[1] or 0)
reply[#reply + 1] = tonumber(totals[2] or 0)
reply[#reply + 1] = 0
reply[#reply + 1] = 0
return reply
