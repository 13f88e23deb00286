-- Remember that an enqueue was turned away, for as long as a late copy of it could arrive: by another job (outcome 3), or for the lack
-- of a parent (4); `holder` is the id of that one.
local function reject_enqueue(job_key, enqueue_nonce, holder, until_ms, outcome)
  redis.call('SET', job_key, struct.pack('>BBBc8I8Bc0', 1, 84, outcome, enqueue_nonce, 0, #holder, holder), 'PXAT', until_ms)
end
