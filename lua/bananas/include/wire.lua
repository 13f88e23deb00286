-- The wire format of Bananas: everything that the shared protocol must know of it (engine/models/bananas.py says what stands where).
-- settings: adopt_after_ms, and seconds to live of completed and failed jobs and of the results of both.
-- @include json_spans
-- @include job_text
-- @include rfc3339_ms
-- @include wire_keys
-- @include wire_waiting
-- @include wire_moves
-- @include wire_ends
-- @include wire_looks
-- @include wire_cron
local function wire(root, prefix, queue, layout, settings, now_ms, tools)
  local text = job_text(json_spans)
  local shared = { text = text, ms_of = rfc3339_ms, now_ms = now_ms, prefix = prefix,
    keys = wire_keys(root, prefix, layout), check_types = tools.check_types, fields = tools.fields }
  -- Ours: nothing on the wire lists the jobs that have completed. The last 1,000 that a worker here has finished.
  shared.done = prefix .. 'done'
  local numbers = {}
  for word in string.gmatch(settings, '%d+') do numbers[#numbers + 1] = tonumber(word) end
  shared.adopt_after_ms, shared.done_s, shared.dead_s = numbers[1] or 0, numbers[2] or 86400, numbers[3] or 604800
  shared.result_s, shared.error_s = numbers[4] or 3600, numbers[5] or 86400

  -- A time as Go writes it: the fraction without zeros at its end, none for `whole` seconds. `nanos`: six digits below the millisecond.
  function shared.time(ms, whole, nanos)
    if whole then return tools.rfc3339(ms, true) end
    local fraction = string.gsub(string.format('.%03d', ms % 1000) .. (nanos or ''), '%.?0*$', '')
    return (string.gsub(tools.rfc3339(ms, true), 'Z$', fraction .. 'Z'))
  end

  local w = {}
  wire_waiting(w, shared)
  wire_moves(w, shared)
  wire_ends(w, shared)
  wire_looks(w, shared)
  wire_cron(w, shared)

  function w.check()
    local keys, lists = shared.keys, { shared.keys.processing, shared.keys.dead }
    for _, priority in ipairs(keys.priorities) do lists[#lists + 1] = keys.list('default', priority) end
    shared.check_types({ keys.scheduled, shared.done }, {}, lists)
  end

  function w.new_id(given) return given end

  -- Nothing on this wire keeps a job out, or holds one; a list or a key of another type is told before anything is written.
  function w.admit(item)
    shared.check_types({}, {}, { shared.keys.list(item.fields[3], item.fields[2]) }, { shared.keys.job(item.id) })
    return nil
  end
  function w.refuses() return false end
  function w.locked() return false end

  return w
end
