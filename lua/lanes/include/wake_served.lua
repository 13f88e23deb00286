-- Markers for what a claim leaves behind (rule 22). None for what this worker had to pass by: it would only come back to it, and
-- the next sweep makes one for the others; none for a class without room. `open` is nil when the claim did not look.
local function wake_served(prefix, classes, open, wakes)
  local looked = {}
  for _, class in ipairs(open or {}) do looked[class.name] = class end
  for _, name in ipairs(classes) do
    local class, ready = looked[name], redis.call('ZCARD', prefix .. 'ready:' .. name) > 0
    local claimable = ready and (not open or class and class.room > 0 and (class.picked > 0 or not class.passed))
    wakes[prefix .. 'wake:' .. name] = claimable or nil -- anchor: claim-leaves-a-marker
  end
end
