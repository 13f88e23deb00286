"""What Mosquito's own programs do to a keyspace, in their own commands and steps: a producer and a runner to test against."""

import time
from typing import Any

import redis

from chaos.foreign_keys import MosquitoKeys
from engine.models import Layout


class Crystal:
    """Their side of one queue, in either layout."""

    def __init__(self, url: str, queue: str, layout: Layout, prefix: str = "mosquito", now_ms: Any = None) -> None:
        self.redis: redis.Redis = redis.Redis.from_url(url, decode_responses=True)
        self.keys = MosquitoKeys(queue, prefix)
        self.layout = layout
        self.now_ms: Any = now_ms or (lambda: int(time.time() * 1000))
        self._last = 0

    def close(self) -> None:
        self.redis.close()

    def store(self, kind: str, *, id: str = "", **parameters: str) -> str:
        """Write the hash of a run; its id."""
        self._last += 1
        now_ms = self.now_ms()
        id = id or f"{now_ms}:{self._last}"
        fields = {**parameters, "enqueue_time": str(now_ms), "type": kind, "retry_count": "0"}
        self.redis.hset(self.keys.run(id), items=[word for pair in fields.items() for word in pair])
        return id

    def enqueue(self, kind: str, *, id: str = "", **parameters: str) -> str:
        """A run that may start at once."""
        id = self.store(kind, id=id, **parameters)
        self.redis.zadd(self.keys.queues, {self.keys.queue: self.now_ms() // 1000})
        self.push(self.keys.waiting, id)
        return id

    def schedule(self, kind: str, at_ms: int, *, id: str = "", **parameters: str) -> str:
        """A run for later; like v2, without a word to `queues`."""
        id = self.store(kind, id=id, **parameters)
        self.redis.zadd(self.keys.scheduled, {id: at_ms})
        return id

    def push(self, key: str, id: str, score: float | None = None) -> None:
        if self.layout == "live":
            self.redis.lpush(key, id)
        else:
            self.redis.zadd(key, {id: self.now_ms() if score is None else score})

    def take(self) -> str | None:
        """What a runner begins with: the next id moves to `pending`."""
        if self.layout == "live":
            return self.redis.lmove(self.keys.waiting, self.keys.pending, "RIGHT", "LEFT")  # type: ignore[return-value]
        popped = self.redis.zpopmin(self.keys.waiting)
        if not popped:
            return None
        self.push(self.keys.pending, popped[0][0])  # type: ignore[index]
        return popped[0][0]  # type: ignore[index, no-any-return]

    def finish(self, id: str) -> None:
        """What it ends with."""
        self.drop(self.keys.pending, id)
        self.redis.expire(self.keys.run(id), 1)

    def drop(self, key: str, id: str) -> None:
        self.redis.lrem(key, 0, id) if self.layout == "live" else self.redis.zrem(key, id)

    def ids(self, key: str) -> list[str]:
        """The entries of a structure, first in first."""
        if self.layout == "live" and key != self.keys.scheduled:
            return self.redis.lrange(key, 0, -1)[::-1]  # type: ignore[index]
        return self.redis.zrange(key, 0, -1)  # type: ignore[return-value]

    def fields(self, id: str) -> dict[str, str]:
        return self.redis.hgetall(self.keys.run(id))  # type: ignore[return-value]
