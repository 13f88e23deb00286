-- Remember that an enqueue was turned away by another job, for as long as a late copy of it could arrive.
local function reject_enqueue(job_key, enqueue_nonce, holder, until_ms)
  redis.call('SET', job_key, struct.pack('>BBBc8I8Bc0', 1, 84, 3, enqueue_nonce, 0, #holder, holder), 'PXAT', until_ms)
end
