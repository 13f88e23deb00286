-- Decode the head of an envelope or of a tombstone (layout: engine/models/envelope.py).
-- Returns a table with kind 'J' (job), 'T' (tombstone) or 'corrupt'; nil where there is no such key.
local function envelope_open(raw)
  if not raw or raw == '' then return nil end
  local version, kind = string.byte(raw, 1, 2)
  if version == 1 and kind == 84 and #raw >= 20 and #raw >= 20 + string.byte(raw, 20) then
    local _, _, outcome, enqueue_nonce, fence, nonce = struct.unpack('>BBBc8I8Bc0', raw)
    local names = { [1] = 'finished', [2] = 'discarded', [3] = 'rejected' }
    return { kind = 'T', outcome = names[outcome], enqueue_nonce = enqueue_nonce, fence = string.format('%d', fence), nonce = nonce }
  end
  local job = { kind = 'corrupt' }
  if version ~= 1 or kind ~= 74 or #raw < 60 then return job end
  local class_length, key_length, name_length, unique_length = string.byte(raw, 57, 60)
  if #raw < 60 + class_length + key_length + name_length + unique_length then return job end
  local _
  _, _, job.priority, job.flags, job.sequence, job.enqueued_ms, job.due_ms, job.enqueue_nonce, job.not_after_ms, job.attempts =
    struct.unpack('>BBBBI8I8I8c8I8H', raw)
  -- 0 in envelopes that were written before there was a bound on crashes.
  job.crashes_max = string.byte(raw, 48)
  if job.crashes_max == 0 then job.crashes_max = 3 end
  local at = 61 + class_length
  job.class = string.sub(raw, 61, at - 1)
  job.lane = key_length == 0 and job.class or job.class .. '/' .. string.sub(raw, at, at + key_length - 1)
  if unique_length > 0 then
    at = at + key_length + name_length
    job.unique = string.sub(raw, at, at + unique_length - 1)
  end
  job.kind = 'J'
  return job
end
