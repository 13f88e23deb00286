-- The index begins anew at this clock, because nothing is known of the channel or it went back: what lives at or before it is looked
-- for when somebody wants it.
local function begin_anew(meta, clock, era)
  redis.call('HSET', meta, 'last', clock, 'upto', clock, 'known', clock, 'era', string.format('%d', era))
  redis.call('HDEL', meta, 'scan', 'ends')
end
