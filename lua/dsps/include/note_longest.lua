-- Before messages come into the index: none that it holds lives longer than `longest_ms` from now. What was said of times to come
-- (`ends`) holds no more for foreign messages that stand among others.
local function note_longest(meta, longest_ms, among)
  if tonumber(redis.call('HGET', meta, 'longest_ms') or 0) < longest_ms then
    redis.call('HSET', meta, 'longest_ms', string.format('%d', longest_ms))
  end
  if among then redis.call('HDEL', meta, 'ends') end
end
