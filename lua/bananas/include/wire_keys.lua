-- The keys of the wire. The two layouts differ in the lists of the default route and in the keys of schedules.
local function wire_keys(root, prefix, layout)
  local live = layout == 'live'
  local keys = { processing = root .. 'queue:processing', dead = root .. 'queue:dead', scheduled = root .. 'queue:scheduled',
    priorities = { 'high', 'normal', 'low' }, number = { high = 8, normal = 5, low = 2 }, live = live, root = root }

  function keys.job(id) return root .. 'job:' .. id end
  function keys.result(id) return root .. 'result:' .. id end
  function keys.notify(id) return root .. 'result:notify:' .. id end
  function keys.cron_lock(name) return root .. (live and 'schedule_lock:' or 'cron:lock:') .. name end
  function keys.cron_state(name) return root .. (live and 'schedules:' or 'cron:state:') .. name end

  -- Where a job waits.
  function keys.list(route, priority)
    if live and route == 'default' then return root .. 'queue:' .. priority end
    return root .. 'route:' .. route .. ':queue:' .. priority
  end

  -- All lists where jobs of this route and priority may be. The live programs' scheduler brings those of the default route to a list that
  -- none of them reads; here it is read.
  function keys.lists(route, priority)
    local lists = { keys.list(route, priority) }
    if live and route == 'default' then lists[2] = root .. 'route:default:queue:' .. priority end
    return lists
  end

  -- The routing keys that this side has heard of, the default one first. Nothing on the wire lists them.
  function keys.routes()
    local routes = redis.call('SMEMBERS', prefix .. 'routes')
    table.sort(routes)
    table.insert(routes, 1, 'default')
    return routes
  end

  function keys.note_route(route)
    if route ~= 'default' then redis.call('SADD', prefix .. 'routes', route) end
  end

  return keys
end
