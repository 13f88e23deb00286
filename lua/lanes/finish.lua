#!lua flags=allow-oom
-- Finish jobs in hand. Each lease ends once: a repeat returns what the first one returned, another token is stale (rule 5).
--
-- KEYS
--   sweep    hash    state of the sweeps
--   active   zset    id by lease deadline (ms)
--   done     zset    id by time
--   stats    hash    counters
--   items    2 for each item: job:<id> and run:<id>
-- ARGV
--   now_ms   '' or the time of a test
--   items    3 for each item: id, fence, nonce
-- REPLY srv_us, for each item: ok | repeated | stale, outcome
-- @include server_us
-- @include check_types
-- @include envelope_open
-- @include token_state
-- @include finish_jobs
local sweep = KEYS[1]
local active = KEYS[2]
local done = KEYS[3]
local stats = KEYS[4]
local now_ms = ARGV[1]

check_types({ active, done }, { sweep, stats }, {})
local srv_us = server_us(now_ms, sweep)
local items = {}
for at = 1, (#KEYS - 4) / 2 do
  items[at] = { job_key = KEYS[3 + 2 * at], run_key = KEYS[4 + 2 * at], id = ARGV[3 * at - 1], fence = ARGV[3 * at], nonce = ARGV[3 * at + 1] }
end
return { srv_us, finish_jobs(active, done, stats, items, math.floor(srv_us / 1000),
  { envelope_open = envelope_open, token_state = token_state }) }
