-- Write down what has happened, where the queue keeps its events (set_events.lua): a script's last writes, so that a copy which changes
-- nothing tells nothing. All else is done by then, so nothing here may fail the script. `events`: keep, and for each event: kind, job,
-- name, detail.
local function tell_events(stream, events)
  for _, event in ipairs(events) do
    redis.pcall('XADD', stream, 'MAXLEN', '~', events.keep, '*', 'kind', event[1], 'job', event[2], 'name', event[3] or '',
      'detail', string.sub(event[4] or '', 1, 500))
  end
end
