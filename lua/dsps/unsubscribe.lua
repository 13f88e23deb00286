#!lua flags=allow-oom
-- Delete a subscriber, whether there is one or not. A second copy of the call says what the first did and deletes nobody who came
-- later.
--
-- KEYS
--   cursor  string  r.<subscriber>, the last acknowledged clock
--   meta    hash    what these scripts know of the channel
--   op      string  what this call has done
-- ARGV
--   subscriber    name
--   not_after_ms  number: server time after which this call is void
-- REPLY srv_us, deleted | missing | refused

local own = expect_type(cursor, 'string', redis.pcall('GET', cursor))
local done = expect_type(op, 'string', redis.pcall('GET', op))
expect_type(meta, 'hash', redis.pcall('HLEN', meta))
local srv_us = server_us()
if done or math.floor(srv_us / 1000) > not_after_ms then return { srv_us, done or 'refused' } end
local result = own and 'deleted' or 'missing'
redis.call('DEL', cursor)
redis.call('HDEL', meta, 'r.' .. subscriber)
redis.call('SET', op, result, 'PXAT', string.format('%d', not_after_ms + 20000))
return { srv_us, result }
