-- Take away what is left of a job that has ended where the call that ended it was cut off: its `run`, and its unique key, which the seal
-- in there names.
-- helpers: free_unique
local function drop_run(prefix, id, helpers)
  local run = prefix .. 'run:' .. id
  local seal = redis.call('HGET', run, 'seal')
  if seal and #seal > 14 then helpers.free_unique(prefix, { unique = string.sub(seal, 15) }, id) end
  redis.call('DEL', run)
end
