"""What Bull 1.0.0 sends to Redis, as plain commands in its order: the other side of a mixed queue, without Node."""

import json
from typing import Any

import redis


class NodeBull:
    """One Node process with a queue. `token` is what it writes into locks; its clock is `now_ms`."""

    def __init__(self, client: redis.Redis, root: str, now_ms: int, token: str = "295aabea-ff12-4bf6-9f12-68d87e1eea80") -> None:
        self.client: Any = client
        self.root, self.now_ms, self.token = root, now_ms, token

    def add(self, data: object, **opts: Any) -> str:
        """A job; its id."""
        id = str(self.client.incr(self.root + "id"))
        delay, made_ms = opts.get("delay", 0), opts.get("timestamp", self.now_ms)
        fields = {"data": data, "opts": opts, "stacktrace": [], "returnvalue": None}
        texts = {name: json.dumps(value, separators=(",", ":")) for name, value in fields.items()}
        numbers = {"progress": 0, "delay": delay, "timestamp": made_ms, "attempts": opts.get("attempts", 1), "attemptsMade": 0}
        self.client.hset(self.root + id, mapping={**texts, **numbers})
        if delay and made_ms + delay > self.now_ms:
            score = (made_ms + delay) * 4096 + (int(id) & 0xFFF)
            self.client.execute_command("ZADD", self.root + "delayed", score, id)
            self.client.publish(self.root + "delayed", f"{score / 4096:.17g}")
        else:
            into = "paused" if self.client.exists(self.root + "meta-paused") else "wait"
            (self.client.rpush if opts.get("lifo") else self.client.lpush)(self.root + into, id)
            self.client.publish(self.root + "jobs", id)
        return id

    def pop(self, *, lock: bool = True) -> str | None:
        """The next job, taken and then locked."""
        id = self.client.rpoplpush(self.root + "wait", self.root + "active")
        if id is not None and lock:
            self.lock(id)
        return id

    def lock(self, id: str) -> bool:
        """Whether the lock was free."""
        return bool(self.client.set(f"{self.root}{id}:lock", self.token, px=5000, nx=True))

    def complete(self, id: str, value: object) -> None:
        """The end of a run that went well: nobody is asked who holds the lock, which is deleted only where it is this one's."""
        if not self.client.exists(self.root + id):
            return
        self.client.sadd(self.root + "completed", id)
        self.client.hset(self.root + id, "returnvalue", json.dumps(value) if value else "")
        self.client.lrem(self.root + "active", 0, id)
        if self.client.get(f"{self.root}{id}:lock") == self.token:
            self.client.delete(f"{self.root}{id}:lock")

    def promote(self) -> str | None:
        """The first delayed job for whose time a timer was set that has run out by its clock: into `wait`, paused or not."""
        ((id, score),) = self.client.zrange(self.root + "delayed", 0, 0, withscores=True) or [("", float("inf"))]
        if score // 4096 > self.now_ms:
            return None
        self.client.zrem(self.root + "delayed", id)
        self.client.lrem(self.root + "active", 0, id)
        self.client.lpush(self.root + "wait", id)
        self.client.publish(self.root + "jobs", id)
        self.client.hset(self.root + id, "delay", 0)
        return id

    def retry(self, id: str) -> None:
        """By hand: a failed job runs again."""
        self.client.srem(self.root + "failed", id)
        self.client.lpush(self.root + "wait", id)
        self.client.publish(self.root + "jobs", id)

    def pause(self) -> None:
        """One list is renamed over the other."""
        if self.client.exists(self.root + "wait"):
            self.client.rename(self.root + "wait", self.root + "paused")
        self.client.set(self.root + "meta-paused", 1)
        self.client.publish(self.root + "paused", "paused")

    def resume(self) -> None:
        """The other way round."""
        if self.client.exists(self.root + "paused"):
            self.client.rename(self.root + "paused", self.root + "wait")
        self.client.delete(self.root + "meta-paused")
        self.client.publish(self.root + "paused", "resumed")

    def lists(self) -> dict[str, list[str]]:
        """The lists of the queue that are there."""
        found = {name: self.client.lrange(self.root + name, 0, -1) for name in ("wait", "paused", "active")}
        return {name: ids for name, ids in found.items() if ids}
