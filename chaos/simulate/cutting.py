"""Scripts that stop in the middle (rule 1): the same text, with a bound on the writes that it may do; and that draw nothing."""

from __future__ import annotations

_PRELUDE = """local writes_left = tonumber(table.remove(ARGV))
local WRITES = { SET = true, MSET = true, DEL = true, ZADD = true, ZREM = true, HSET = true, HDEL = true, HINCRBY = true,
  SADD = true, SREM = true, XADD = true,
  RPUSH = true, INCR = true, INCRBY = true, ZREMRANGEBYRANK = true, ZREMRANGEBYSCORE = true, PEXPIREAT = true, UNLINK = true,
  LREM = true, RPOP = true, RPOPLPUSH = true, LMOVE = true, EXPIRE = true, PEXPIRE = true, PERSIST = true }
local function cut(ask)
  return function(name, ...)
    if WRITES[name] then
      if writes_left == 0 then error('SIMULATED cut') end
      writes_left = writes_left - 1
    end
    return ask(name, ...)
  end
end
local calls, pcalls = cut(redis.call), cut(redis.pcall)
local redis = setmetatable({ call = calls, pcall = function(name, ...)
  return (name == 'ZADD' and pcalls or redis.pcall)(name, ...)
end }, { __index = redis })
"""


#: Members of a set are drawn in their order: what a walk finds of them decides which calls come next.
_NO_CHANCE = """local function without_chance(ask)
  return function(name, ...)
    if name ~= 'SRANDMEMBER' then return ask(name, ...) end
    local key, count = ...
    local members = ask('SMEMBERS', key)
    if members.err then return members end
    table.sort(members)
    if not count then return members[1] or false end
    return { unpack(members, 1, math.min(#members, tonumber(count))) }
  end
end
local redis = setmetatable({ call = without_chance(redis.call), pcall = without_chance(redis.pcall) }, { __index = redis })
"""


def without_chance(text: str) -> str:
    """A script's text that draws nothing at random, so that a seed replays to the byte."""
    return with_prelude(text, _NO_CHANCE) if "'SRANDMEMBER'" in text else text


def cut_text(text: str) -> str:
    """A script's text that takes one more argument: after how many writes it stops with an error."""
    return with_prelude(text, _PRELUDE)


def with_prelude(text: str, prelude: str) -> str:
    """A script's text with other lines before it: those may shadow the names of the server."""
    first, rest = text.split("\n", 1)
    return f"{first}\n{prelude}{rest}"
