-- The state of a job as an enqueue tells it of the one that was there first, and its last fence.
local function foreign_state(prefix, format, id)
  local run = redis.call('HMGET', prefix .. 'run:' .. id, 'fence', 'outcome', 'nonce')
  local place = format.place(id)
  local shown = { done = 'finished' }
  local state = place and (shown[place] or place) or run[3] == '' and run[2] or 'gone'
  return state, tonumber(run[1] or 0)
end
