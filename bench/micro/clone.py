"""Creates very many waiting jobs of a foreign model quickly, as copies of one that the engine has enqueued.

The places of a job are found on the server: the keys with its id in their name, and the lists and sorted sets that contain it.
As with an original client, no keys of the engine are written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import redis

import engine
from bench.micro.payload import FLAT

#: Part of the names of the engine's own keys.
_OURS = b"ironclaim:"
_PIECE = 5_000
_DIGITS = 9

#: Copies strings and hashes with the new id instead of the old one, and pushes it to lists at the end where new jobs arrive.
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
    """The engine does not count the copies as waiting jobs."""


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a job: bodies (its own keys with their content) and indexes (lists and sorted sets that contain its id)."""

    bodies: list[dict[str, Any]]
    indexes: list[dict[str, Any]]


def fill(queue: engine.Queue, plain: redis.Redis, count: int, *, name: str) -> None:
    """Add this many jobs of the name at the back of the queue. Raises NotCopied when the engine does not count them as
    waiting."""
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
    """The places of a waiting job, and the end of each list at which the job after it (`later`) is."""
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
