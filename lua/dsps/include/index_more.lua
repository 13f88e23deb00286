-- Find more of the living messages that the index lacks, for a subscriber whose cursor is `own` in a channel that is at `at`; the
-- index then says how far it has come. Returns how many looks are left of this call's, and whether messages right after the cursor
-- are still unknown, so that none may be delivered yet.
local function index_more(bodies, index, own, at, helpers)
  local steps, looks = helpers.clock_steps, 1000
  local function before()
    return index.known ~= 'all' and helpers.clock_after(index.known, own) and steps(own, index.known) or 0
  end
  if before() == 0 and index.upto == at then return looks, false end
  local most = math.max(before(), steps(index.upto, at))
  if index.scan or most > looks and most > redis.call('DBSIZE') then
    -- Half of the looks are for messages that are known of, where there may be some.
    looks = looks - helpers.scan_bodies(bodies, index, at, before() > 0 and looks or looks / 2, helpers)
    if index.scan then return looks, before() > 0 end
  end
  local count = math.min(before(), looks)
  if count > 0 then
    helpers.add(helpers.look_around(helpers.clock_ahead, bodies, index.known, -1, count))
    index.known, looks = helpers.clock_ahead(index.known, -count), looks - count
  end
  count = math.min(steps(index.upto, at), looks - 500)
  if count > 0 then
    helpers.add(helpers.look_around(helpers.clock_ahead, bodies, helpers.clock_ahead(index.upto, 1), 1, count))
    index.upto, looks = helpers.clock_ahead(index.upto, count), looks - count
  end
  return looks, before() > 0
end
