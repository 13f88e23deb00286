-- A job from its JSON, whatever a foreign client has written into it: null and values of another type count as absent where the
-- format can do without them. `fault` says why nobody could run it. `body` is what Python reads: the JSON with null in place of the
-- payload, and the payload's own bytes.
local function bridge_job(id, raw, members)
  local function corrupt(why) return { kind = 'corrupt', why = why, body = { '', '' }, raw = raw } end
  if not members then return corrupt('no JSON object') end
  local function object(name)
    local text = members.raw(name) or '{}'
    -- None of those that are read here is as large as this.
    if #text > 65536 or #text < 4 then return {} end
    local read, list = pcall(cjson.decode, '[' .. text .. ']')
    return read and type(list[1]) == 'table' and list[1] or {}
  end
  local function number(given, default)
    local found = tonumber(given)
    -- Neither nan nor beyond what a double counts.
    return found and found == found and math.abs(found) < 2 ^ 53 and math.floor(found) or default
  end
  local name, retry, limit = members.value('type'), object('retry'), object('rateLimit')
  if type(name) ~= 'string' or name == '' then return corrupt('it has no type') end
  local target, needs = object('target'), nil
  for _, category in ipairs({ 'stack', 'capabilities', 'region' }) do
    local wanted = target[category]
    if wanted == cjson.null then target[category] = nil end
    -- One value where a list is meant.
    if type(wanted) == 'string' then target[category] = { wanted } end
    if type(target[category] or {}) ~= 'table' then return corrupt('target.' .. category .. ' is no list') end
  end
  for _, parent in ipairs(object('dependsOn')) do
    if type(parent) == 'string' then
      needs = needs or {}
      needs[#needs + 1] = parent
    end
  end
  -- `retry.attempts` are the runs after the first one.
  local again = math.max(0, math.min(number(retry.attempts, 0), 999))
  local failures, priority = number(members.value('attempts'), 0), number(members.value('priority'), 5)
  local made_ms, payload = number(members.value('createdAt'), 0), members.raw('payload') or 'null'
  members.set('payload', 'null')
  return {
    kind = 'J', id = id, name = name, body = { members.text(), payload }, raw = raw, failures = math.max(0, failures), attempts = again + 1,
    priority = math.max(1, math.min(priority, 10)), enqueued_ms = made_ms, due_ms = 0, result_ttl_ms = 86400000, needs = needs,
    target = target, concurrent = type(limit.maxConcurrent) == 'number' and limit.maxConcurrent or nil,
    per_minute = type(limit.maxPerMinute) == 'number' and limit.maxPerMinute or nil,
  }
end
