"""What foreign clients may have written that is no job: for each format, into the place that is claimed from next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from engine.models.model import Spec

Write = Callable[[redis.Redis], Any]


def garbage(spec: Spec, queue: str) -> dict[str, Write]:
    """What to write, by what it is; nothing for Lanes, which has no foreign clients."""
    kind = type(spec).__name__
    if kind == "Bull":
        return _bull(f"bull:{queue}:")
    return {}


def _bull(root: str) -> dict[str, Write]:
    def job(id: str, *fields: str) -> Write:
        def write(client: redis.Redis) -> None:
            if fields:
                client.hset(root + id, items=list(fields))
            client.lpush(f"{root}wait", id)

        return write

    def string(client: redis.Redis) -> None:
        client.set(f"{root}900", "no hash")
        client.lpush(f"{root}wait", "900")

    return {
        "id without a hash": job("901"),
        "hash of another type": string,
        "opts that are no JSON": job("902", "data", "{}", "opts", "{oops"),
        "opts that are null": job("903", "data", '{"label":"null"}', "opts", "null"),
        "data that is no JSON": job("904", "data", "{oops", "opts", "{}"),
        "numbers that are none": job("905", "data", '{"label":"n"}', "opts", "{}", "attempts", "many", "timestamp", "-1e400"),
        "id with colons": job("a:b:c", "data", '{"label":"colons"}', "opts", "{}"),
        "id of a key of the queue": job("wait"),
        "nothing": job(""),
        "unknown fields": job("906", "data", '{"label":"more"}', "opts", '{"x":1}', "newer", "1"),
        "an id twice": lambda client: client.lpush(f"{root}wait", "901", "901"),
    }
