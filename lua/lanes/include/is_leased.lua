-- True while a live token exists: `run` names it and `active` still holds it. An entry of another index is then left over
-- from a script that was cut off, and must not start the job a second time.
local function is_leased(run, active, id)
  local nonce = redis.call('HGET', run, 'nonce')
  return nonce and nonce ~= '' and redis.call('ZSCORE', active, id) ~= false
end
