"""Scripts that stop in the middle (rule 1): the same text, with a bound on the writes that it may do."""

from __future__ import annotations

_PRELUDE = """local writes_left = tonumber(table.remove(ARGV))
local WRITES = { SET = true, MSET = true, DEL = true, ZADD = true, ZREM = true, HSET = true, HDEL = true, HINCRBY = true,
  SADD = true, SREM = true, XADD = true,
  RPUSH = true, INCR = true, INCRBY = true, ZREMRANGEBYRANK = true, ZREMRANGEBYSCORE = true, PEXPIREAT = true, UNLINK = true,
  LREM = true, RPOP = true, RPOPLPUSH = true, LMOVE = true, EXPIRE = true, PEXPIRE = true, PERSIST = true }
local server = redis
local redis = setmetatable({ call = function(name, ...)
  if WRITES[name] then
    if writes_left == 0 then error('SIMULATED cut') end
    writes_left = writes_left - 1
  end
  return server.call(name, ...)
end }, { __index = server })
"""


def cut_text(text: str) -> str:
    """A script's text that takes one more argument: after how many writes it stops with an error."""
    return with_prelude(text, _PRELUDE)


def with_prelude(text: str, prelude: str) -> str:
    """A script's text with other lines before it: those may shadow the names of the server."""
    first, rest = text.split("\n", 1)
    return f"{first}\n{prelude}{rest}"
