"""Scripts that stop in the middle (rule 1): the same text, with a bound on the writes that it may do."""

from __future__ import annotations

from engine.wire.scripts import Script

_PRELUDE = """local writes_left = tonumber(table.remove(ARGV))
local WRITES = { SET = true, MSET = true, DEL = true, ZADD = true, ZREM = true, HSET = true, HDEL = true, HINCRBY = true,
  SADD = true, SREM = true, XADD = true,
  RPUSH = true, INCR = true, INCRBY = true, ZREMRANGEBYRANK = true, ZREMRANGEBYSCORE = true, PEXPIREAT = true, UNLINK = true }
local server = redis
local redis = { error_reply = server.error_reply, pcall = server.pcall, call = function(name, ...)
  if WRITES[name] then
    if writes_left == 0 then error('SIMULATED cut') end
    writes_left = writes_left - 1
  end
  return server.call(name, ...)
end }
"""


def cut_text(script: Script) -> str:
    """The text of a script that takes one more argument: after how many writes it stops with an error."""
    first, rest = script.text.split("\n", 1)
    return f"{first}\n{_PRELUDE}{rest}"
