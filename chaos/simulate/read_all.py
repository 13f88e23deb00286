"""All raw keys of a server in one round trip, whichever they are: for models whose keys stand beside those of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

READ_ALL = """#!lua flags=allow-oom
-- Everything that the server keeps, at one instant: all keys with their types, their values and the times at which they expire.
-- With ARGV[2] a time, deletes first what has expired by then: the server's own clock never comes to the simulator's years.
--
-- ARGV: prefix of the keys, '' or the time (ms) of the simulator
-- REPLY the next time at which a key expires, and for each key: name, type, value, time at which it expires (below 0: never)
local prefix, now_ms = ARGV[1], tonumber(ARGV[2])
local names = redis.call('KEYS', prefix .. '*')
table.sort(names)
local found, next_ms = {}, 0
for _, key in ipairs(names) do
  local at_ms = redis.call('PEXPIRETIME', key)
  if at_ms > 0 and now_ms and at_ms <= now_ms then
    redis.call('DEL', key)
  else
    if at_ms > 0 and (next_ms == 0 or at_ms < next_ms) then next_ms = at_ms end
    local kind, value = redis.call('TYPE', key).ok, nil
    if kind == 'string' then value = redis.call('GET', key)
    elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
    elseif kind == 'hash' then value = redis.call('HGETALL', key)
    elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    elseif kind == 'set' then
      value = redis.call('SMEMBERS', key)
      table.sort(value)
    else value = '' end
    for _, word in ipairs({ key, kind, value, at_ms }) do found[#found + 1] = word end
  end
end
return { next_ms, found }
"""


class Key(NamedTuple):
    """One key. `value`: the text of a string, the members of a list or set, the fields of a hash, the scores of a zset."""

    kind: str
    raw: Any
    expires_ms: int
    value: Any


class Keyspace(NamedTuple):
    """All keys at one instant. `changed`: names of those that differ from the instant before, without those that only expire at
    another time."""

    keys: Mapping[str, Key]
    changed: Sequence[str]
    expires_ms: int


NO_KEYS = Keyspace({}, (), 0)


def read_keyspace(reply: Any, before: Keyspace) -> Keyspace:
    """What the script has read, opened only where it differs from the instant before."""
    expires_ms, words = reply
    keys: dict[str, Key] = {}
    changed: list[str] = []
    for at in range(0, len(words), 4):
        name, kind, raw, at_ms = words[at].decode(), words[at + 1].decode(), words[at + 2], words[at + 3]
        was = before.keys.get(name)
        if was is None or was.raw != raw or was.kind != kind:
            changed.append(name)
            keys[name] = Key(kind, raw, at_ms, _opened(kind, raw))
        else:
            keys[name] = was if was.expires_ms == at_ms else was._replace(expires_ms=at_ms)
    changed.extend(name for name in before.keys if name not in keys)
    return Keyspace(keys, changed, expires_ms)


def _opened(kind: str, raw: Any) -> Any:
    if kind == "string":
        return raw.decode(errors="replace")
    words = [word.decode(errors="replace") for word in raw]
    if kind == "hash":
        return dict(zip(words[::2], words[1::2], strict=True))
    if kind == "zset":
        return {words[at]: float(words[at + 1]) for at in range(0, len(words), 2)}
    return tuple(words)
