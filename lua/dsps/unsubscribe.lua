#!lua flags=allow-oom
-- Delete a subscriber, if there is one. A second copy of the call returns the reply of the first and does not
-- delete a subscriber that was created in between.
--
-- KEYS
--   cursor  string  r.<subscriber>, the last acknowledged clock
--   meta    hash    state that these scripts keep of the channel
--   op      string  record of this call: its result
-- ARGV
--   subscriber    name
--   not_after_ms  number: server time after which this call is void
-- REPLY srv_us, deleted | missing | refused
-- USES dsps/clock: expect_type, server_us

local own = expect_type(cursor, 'string', redis.pcall('GET', cursor))
local done = expect_type(op, 'string', redis.pcall('GET', op))
expect_type(meta, 'hash', redis.pcall('HLEN', meta))
local srv_us = server_us()
if done or math.floor(srv_us / 1000) > not_after_ms then return { srv_us, done or 'refused' } end
local result = own and 'deleted' or 'missing'
redis.call('DEL', cursor)
redis.call('HDEL', meta, 'r.' .. subscriber)
redis.call('SET', op, result, 'PXAT', string.format('%d', not_after_ms + LATE_COPY_MS))
return { srv_us, result }
