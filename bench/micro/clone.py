"""Very many waiting jobs of a foreign model, quickly: copies of one that the engine has put in.

Where such a model keeps a job is read off the server, not known here: the keys that have its id in their name, and the lists and
sorted sets that hold it. So this is a foreign client, too: it leaves nothing of the engine's own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import redis

import engine
from bench.micro.payload import FLAT

#: Keys of the engine's own have this in their name.
_OURS = b"ironclaim:"
_PIECE = 5_000
_DIGITS = 9

#: Strings and hashes are written with the new id in the place of the old; lists get it at the end at which new jobs arrive.
_COPY = """
local old, from, count, places = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), cjson.decode(ARGV[4])
local stem = string.sub(old, 1, -10)
for number = from, from + count - 1 do
  local id = stem .. string.format('%09d', number)
  for at, body in ipairs(places.bodies) do
    local key = string.gsub(body.key, old, id)
    if body.kind == 'string' then
      redis.call('SET', key, (string.gsub(body.value, old, id)))
    else
      local words = {}
      for place, word in ipairs(body.value) do words[place] = (string.gsub(word, old, id)) end
      redis.call('HSET', key, unpack(words))
    end
  end
  for at, index in ipairs(places.indexes) do
    if index.kind == 'zset' then
      redis.call('ZADD', index.key, index.score, id)
    else
      redis.call(index.push, index.key, id)
    end
  end
end
"""


class NotCopied(Exception):
    """The copies are not what the engine sees as waiting jobs."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a job is: bodies (its own keys, with what they hold) and indexes (where its id stands)."""

    bodies: list[dict[str, Any]]
    indexes: list[dict[str, Any]]


def fill(queue: engine.Queue, plain: redis.Redis, count: int, *, name: str) -> None:
    """Put so many jobs of the name at the back of the queue. Raises NotCopied."""
    before = queue.counts().waiting
    for id in (_id(name, before), _id(name, before + 1)):
        queue.enqueue(name, FLAT, id=id)
    template = _id(name, before)
    found = places(plain, template, _id(name, before + 1))
    words = json.dumps({"bodies": found.bodies, "indexes": found.indexes})
    for start in range(before + 2, before + count, _PIECE):
        plain.eval(_COPY, 0, template, start, min(_PIECE, before + count - start), words)
    waiting = queue.counts().waiting
    if waiting != before + count:
        raise NotCopied(f"{queue.model.name}: {waiting} jobs wait after {count} were copied behind {before}")


def _id(name: str, number: int) -> str:
    return f"{name}{number:0{_DIGITS}d}"


def places(plain: redis.Redis, template: str, later: str) -> Places:
    """Where a job is that is waiting, and at which end of a list the one behind it stands."""
    bodies: list[dict[str, Any]] = []
    indexes: list[dict[str, Any]] = []
    keys: Any = plain.scan_iter(count=1000)
    for key in [key for key in keys if _OURS not in key]:
        kind = plain.type(key).decode()  # pyright: ignore[reportAttributeAccessIssue]
        words: list[bytes] = []
        if template.encode() in key:
            if kind == "string":
                bodies.append({"key": key.decode(), "kind": kind, "value": _text(plain.get(key))})
            elif kind == "hash":
                pairs: Any = plain.hgetall(key)
                words = [word for pair in pairs.items() for word in pair]
                bodies.append({"key": key.decode(), "kind": kind, "value": [_text(word) for word in words]})
        elif kind == "list":
            held: Any = plain.lrange(key, 0, -1)
            if template.encode() in held:
                push = "RPUSH" if held.index(later.encode()) > held.index(template.encode()) else "LPUSH"
                indexes.append({"key": key.decode(), "kind": kind, "push": push})
        elif kind == "zset":
            score: Any = plain.zscore(key, later)
            if score is not None:
                indexes.append({"key": key.decode(), "kind": kind, "score": repr(score)})
    return Places(bodies, indexes)


def _text(value: Any) -> str:
    return value.decode("latin-1")
