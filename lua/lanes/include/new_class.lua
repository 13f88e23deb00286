-- Whether this class has never held a job; reads only. `target` is what it wants of a worker, '' = nothing. Raises for a
-- queue that has too many classes: each sweep looks at all of them.
local function new_class(prefix, classes, class, target)
  if redis.call('HEXISTS', classes, class) == 1 then return false end
  if redis.call('HLEN', classes) >= 10000 then error({ err = 'IRONCLAIM more than 10000 classes' }) end
  if target ~= '' then
    redis.call('HLEN', prefix .. 'routed')
    redis.call('HLEN', prefix .. 'settings')
  end
  return true
end
