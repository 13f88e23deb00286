-- Refuse to run while the queue's slot moves between two nodes of a cluster (rules 1 and 27). Both nodes refuse a command with two
-- keys of which one is missing, and this pair always has one that is. What comes after it then sees the whole slot: a key that is not
-- in KEYS would else read as missing at the node that it has not reached, and its job would be taken for gone.
local function settled(prefix)
  redis.call('EXISTS', prefix .. 'sweep', prefix .. 'absent')
end
