#!lua flags=allow-oom
-- Remove jobs of one state that are old enough, one page per call: only jobs that were there when the first
-- call began (rule 7). The formats keep no sequence, so later calls compare the time stored in the job; the
-- first call removes only what it finds. The reply counts the entries that stay, so that the next page begins
-- behind them.
--
-- HEAD foreign/format
-- KEYS
--   active  zset    id by lease deadline (ms)
--   stats   hash    counters
--   op      string  op:<op id>, record of this call: its reply
-- ARGV
--   not_after_ms   number: server time after which this call is void
--   op_id          identity of the call, which its tombstones carry
--   state          waiting | blocked | delayed | active | dead | finished
--   older_than_ms  number: since they were enqueued, or since they died or finished
--   era_sequence   '' or 0
--   era_ms         '' = the work begins now: no job that came or ended after it is removed
--   offset         number: entries that stay
--   limit          number: most entries to read
--   most           number: most jobs to remove
-- REPLY srv_us, done | repeated | refused, removed, kept, era_sequence, era_ms
-- USES <format>: wire_ended, wire_read
--      core/call: administered, check_types, recorded_words
--      core/wake: append_events
--      foreign/ends: end_by_hand
--      foreign/format: format_now
--      foreign/looks: jobs_at

local srv_us, format = format_now(now_ms, sweep, root, prefix, queue, layout, settings)
now_ms = format.now_ms
check_types({ active }, { stats }, {}, { op })

local known = administered(op, not_after_ms, now_ms)
if known then return { srv_us, known, unpack(recorded_words(op)) } end
local begins = era_ms == ''
era_sequence = era_sequence == '' and '0' or era_sequence
era_ms = tonumber(begins and now_ms or era_ms)
local all, old, kept = older_than_ms == 0, {}, 0
for _, entry in ipairs(jobs_at(active, state, offset, limit, false, now_ms, format)) do
  if #old >= most then break end
  local job = wire_read(format, entry.id)
  local over = (state == 'dead' or state == 'finished') and wire_ended(format, entry.id)
  local since_ms = over and over.ended_ms or 0
  if over and since_ms == 0 then
    since_ms = tonumber(redis.pcall('HGET', prefix .. 'run:' .. entry.id, 'ended_ms') or 0) or 0
  end
  if since_ms == 0 and job and job.kind == 'J' then since_ms = job.enqueued_ms or 0 end
  -- A job that cannot be read or has no time has no age. It is removed when all jobs of the state are.
  local stays = not all and (since_ms == 0 or since_ms > now_ms - older_than_ms)
    or not begins and since_ms > era_ms
  if stays then
    kept = kept + 1
  else
    entry.job = job
    old[#old + 1] = entry
  end
end
local keep = redis.call('HGET', stats, 'events')
local events = keep and { keep = keep }
local ending = { outcome = 'discarded', op_id = op_id, not_after_ms = not_after_ms }
for _, entry in ipairs(old) do
  end_by_hand(prefix, entry.id, entry.job, state, ending, now_ms, format, events)
end
local results = { #old, kept, era_sequence, string.format('%d', era_ms) }
redis.call('SET', op, table.concat(results, ' '), 'PXAT', not_after_ms + LATE_COPY_MS)
if events then append_events(prefix .. 'events', events) end
return { srv_us, 'done', unpack(results) }
