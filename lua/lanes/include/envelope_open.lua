-- Decode the head of an envelope or of a tombstone (layout: engine/models/envelope.py).
-- Returns a table with kind 'J' (job), 'T' (tombstone) or 'corrupt'; nil where there is no such key.
local function envelope_open(raw)
  if not raw or raw == '' then return nil end
  local version, kind = string.byte(raw, 1, 2)
  if version == 1 and kind == 84 and #raw >= 20 and #raw >= 20 + string.byte(raw, 20) then
    local _, _, outcome, enqueue_nonce, fence, nonce = struct.unpack('>BBBc8I8Bc0', raw)
    local names = { 'finished', 'discarded', 'rejected', 'orphaned', 'skipped', 'rerouted', 'cancelled' }
    return { kind = 'T', outcome = names[outcome], enqueue_nonce = enqueue_nonce, fence = string.format('%d', fence), nonce = nonce }
  end
  local job = { kind = 'corrupt' }
  if version ~= 1 or kind ~= 74 or #raw < 42 then return job end
  local delayed = math.floor(string.byte(raw, 4) / 2) % 2 == 1
  local at = delayed and 23 or 17
  if #raw < at + 25 then return job end
  local class_length, key_length, name_length, unique_length = string.byte(raw, at + 22, at + 25)
  if #raw < at + 25 + class_length + key_length + name_length + unique_length then return job end
  job.priority, job.flags, job.sequence, job.enqueued_ms = struct.unpack('>BBI6I6', raw, 3)
  job.due_ms = delayed and struct.unpack('>I6', raw, 17) or 0
  local _
  job.enqueue_nonce, job.not_after_ms, job.attempts, _, job.crashes_max = struct.unpack('>c8I6HBB', raw, at)
  at = at + 26
  job.class = string.sub(raw, at, at + class_length - 1)
  at = at + class_length
  job.lane = key_length == 0 and job.class or job.class .. '/' .. string.sub(raw, at, at + key_length - 1)
  at = at + key_length
  job.name = name_length > 0 and string.sub(raw, at, at + name_length - 1) or job.class
  at = at + name_length
  -- Where the options as JSON begin, with their length.
  if math.floor(job.flags / 8) % 2 == 1 then job.options_at = at + unique_length + (math.floor(job.flags / 4) % 2 == 1 and 4 or 0) end
  job.unique = unique_length > 0 and string.sub(raw, at, at + unique_length - 1) or nil
  job.kind = 'J'
  return job
end
