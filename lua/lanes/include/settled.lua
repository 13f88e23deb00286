-- Refuse to run while the queue's slot moves between two nodes of a cluster (rules 1 and 27). Both nodes refuse a command with two
-- keys of which one is missing, and this pair always has one that is. What comes after it then sees the whole slot: a key that is not
-- in KEYS would else read as missing at the node that it has not reached, and its job would be taken for gone. Nothing was written
-- yet, so the reply is the one for which a call is simply sent again.
local function settled(prefix)
  local there = redis.pcall('EXISTS', prefix .. 'sweep', prefix .. 'absent')
  if type(there) == 'table' then error({ err = 'TRYAGAIN the slot of the queue is on the move' }) end
end
