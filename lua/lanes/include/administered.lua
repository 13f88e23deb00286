-- What an administration call has to do (rule 7): nil when this copy shall do it, else its reply: 'repeated' for a copy of one that was
-- done, 'refused' for one that comes too late. `op` is the call's record.
local function administered(op, not_after_ms, now_ms)
  if redis.call('EXISTS', op) == 1 then return 'repeated' end
  if now_ms > not_after_ms then return 'refused' end -- anchor: late-admin-action-is-void
end
