-- Whether a worker is one that a target asks for: the named server alone; else each category that asks for something is met, stack
-- and region by one of their values, capabilities by one (`mode` any) or by all of them (any other mode).
local function bridge_matches(target, worker)
  local server = target.server
  if server ~= nil and server ~= cjson.null and server ~= '' then return server == worker.server end
  local function among(wanted, own)
    if not wanted or #wanted == 0 then return true end
    for _, value in ipairs(wanted) do
      if value == own then return true end
    end
    return false
  end
  if not among(target.stack, worker.stack) or not among(target.region, worker.region) then return false end
  local wanted, met = target.capabilities or {}, 0
  for _, value in ipairs(wanted) do
    if worker.capabilities[value] then met = met + 1 end
  end
  return #wanted == 0 or (met > 0 and (target.mode == 'any' or met == #wanted))
end
