-- The fields of `run` that say why a run came to nothing: the last error, and one more entry of its history, of which the last ten
-- stay: time (ms), fence, kind (failed | lost), error, and behind a zero byte the stack trace. They are written with the end of the
-- token, so that a call that was cut off and sent again notes nothing twice.
local function error_note(run, now_ms, fence, kind, text, trace)
  local count = tonumber(redis.call('HGET', run, 'errors') or 0)
  return { 'error', text, 'errors', count + 1, 'e' .. count % 10,
    string.format('%d', now_ms) .. ' ' .. fence .. ' ' .. kind .. ' ' .. text .. '\0' .. trace }
end
