"""What the original program of each format does to its keys, in the commands and steps that were seen of it: no tokens, no
scripts of the engine, and everything else in several steps between which the engine may act."""

from __future__ import annotations

import json
from typing import Any

import redis

from chaos.foreign_keys import BananasKeys, BridgeKeys, MosquitoKeys

#: For how long a job is taken for held by this client: as long as a lease in these runs, so that one bound holds for both.
LOCK_MS = 2_000


#: Fields of a Mosquito run that are not of its payload.
METADATA = ("enqueue_time", "type", "retry_count", "started_at", "finished_at", "overseer_id", "ironclaim")

#: As the engine writes JSON: a program that changes one member of a job keeps the bytes of the others.
to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class ForeignClient:
    """One queue over the raw wire. `worker` is its name in locks and hashes."""

    #: Whether two promotions of the original may add one job twice.
    doubles = False
    #: Whether programs of the format delete jobs.
    deletes = True

    def __init__(self, url: str, queue: str, worker: str) -> None:
        self.redis: Any = redis.Redis.from_url(url, decode_responses=True, single_connection_client=True)
        self.queue = queue
        self.worker = worker

    def now_ms(self) -> int:
        """The server's time."""
        seconds, us = self.redis.time()
        return int(seconds) * 1_000 + int(us) // 1_000

    def take(self) -> str:
        """Take the next job as an original worker does; '' for none that it may run."""
        raise NotImplementedError

    def payload(self, job: str) -> str:
        """The payload of a job as the engine has sent it; '' where the job is gone."""
        raise NotImplementedError

    def active(self) -> list[str]:
        """Jobs that somebody runs."""
        raise NotImplementedError

    def finish(self, job: str) -> bool:
        """End a job as completed, without asking who holds it; False where it is gone."""
        raise NotImplementedError

    def delete(self, job: str) -> None:
        """Delete a job that this client has taken, with all of its keys."""
        raise NotImplementedError

    def move(self) -> None:
        """Put the job that is next behind all others."""
        raise NotImplementedError

    def due(self) -> list[str]:
        """Delayed jobs that are due."""
        raise NotImplementedError

    def rests(self, job: str) -> bool:
        """Whether a job is delayed and not due: a promotion that begins now leaves it alone."""
        raise NotImplementedError

    def copy(self, job: str) -> str:
        """What a promotion reads of a job, and writes back later; '' where it writes nothing back."""
        return ""

    def waiting(self) -> list[str]:
        """Some jobs that wait."""
        raise NotImplementedError

    def promote(self, job: str, copy: str) -> None:
        """The rest of a promotion, whoever was quicker: the job goes to the waiting ones."""
        raise NotImplementedError


class Bull(ForeignClient):
    """Bull 1.0.0: brpoplpush, then a lock that it sets for 5 s."""

    def _key(self, name: str) -> str:
        return f"bull:{self.queue}:{name}"

    def take(self) -> str:
        job = self.redis.rpoplpush(self._key("wait"), self._key("active")) or ""
        # A worker of the engine may have locked it in between: the original leaves such a job alone.
        locked = job and self.redis.set(self._key(f"{job}:lock"), self.worker, nx=True, px=LOCK_MS)
        return job if locked and not self.redis.sismember(self._key("completed"), job) else ""

    def payload(self, job: str) -> str:
        return self.redis.hget(self._key(job), "data") or ""

    def active(self) -> list[str]:
        return self.redis.lrange(self._key("active"), 0, 50)

    def finish(self, job: str) -> bool:
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.lrem(self._key("active"), 0, job)
            pipe.sadd(self._key("completed"), job)
            pipe.hset(self._key(job), "returnvalue", "null")
            pipe.delete(self._key(f"{job}:lock"))
            return bool(pipe.execute()[0])

    def delete(self, job: str) -> None:
        with self.redis.pipeline(transaction=True) as pipe:
            for name in ("active", "wait"):
                pipe.lrem(self._key(name), 0, job)
            pipe.zrem(self._key("delayed"), job)
            pipe.delete(self._key(job), self._key(f"{job}:lock"))
            pipe.execute()

    def move(self) -> None:
        self.redis.rpoplpush(self._key("wait"), self._key("wait"))

    def due(self) -> list[str]:
        return self.redis.zrangebyscore(self._key("delayed"), 0, (self.now_ms() + 1) * 0x1000 - 1, 0, 10)

    def rests(self, job: str) -> bool:
        return (self.redis.zscore(self._key("delayed"), job) or 0) // 0x1000 > self.now_ms()

    def waiting(self) -> list[str]:
        return self.redis.lrange(self._key("wait"), 0, 20)

    def promote(self, job: str, copy: str) -> None:
        # The script of the original is one step.
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.watch(self._key("delayed"))
            if pipe.zscore(self._key("delayed"), job) is None:
                return
            pipe.multi()
            pipe.zrem(self._key("delayed"), job)
            pipe.lpush(self._key("wait"), job)
            pipe.hset(self._key(job), "delay", 0)
            try:
                pipe.execute()
            except redis.WatchError:
                return


class Bananas(ForeignClient):
    """Bananas, with the lists of its document: a job is JSON that its programs read, change and write back whole."""

    doubles = True
    keys = BananasKeys()

    def _lists(self) -> list[str]:
        return [self.keys.waiting("default", level) for level in ("high", "normal", "low")]

    def take(self) -> str:
        for key in self._lists():
            if job := self.redis.lmove(key, self.keys.processing, "RIGHT", "LEFT"):
                status = json.loads(self.copy(job) or "{}").get("status")
                if status in ("pending", "scheduled"):
                    return str(job)
                self.redis.lrem(self.keys.processing, 1, job)
                return ""
        return ""

    def payload(self, job: str) -> str:
        copy = self.copy(job)
        return to_json(json.loads(copy)["payload"]) if copy else ""

    def active(self) -> list[str]:
        return self.redis.lrange(self.keys.processing, 0, 50)

    def finish(self, job: str) -> bool:
        if not (copy := self.copy(job)):
            return False
        self.redis.set(self.keys.job(job), to_json(json.loads(copy) | {"status": "completed"}), ex=86_400)
        self.redis.lrem(self.keys.processing, 1, job)
        return True

    def delete(self, job: str) -> None:
        self.redis.lrem(self.keys.processing, 0, job)
        self.redis.delete(self.keys.job(job))

    def move(self) -> None:
        self.redis.lmove(self._lists()[1], self._lists()[1], "RIGHT", "LEFT")

    def due(self) -> list[str]:
        return self.redis.zrangebyscore(self.keys.scheduled, 0, self.now_ms() // 1_000, 0, 10)

    def rests(self, job: str) -> bool:
        return (self.redis.zscore(self.keys.scheduled, job) or 0) * 1_000 > self.now_ms()

    def copy(self, job: str) -> str:
        return self.redis.get(self.keys.job(job)) or ""

    def waiting(self) -> list[str]:
        return [job for key in self._lists() for job in self.redis.lrange(key, 0, 10)]

    def promote(self, job: str, copy: str) -> None:
        told = json.loads(copy or "{}")
        if told.get("status") not in ("pending", "scheduled"):
            return
        # The original does not look whether it was the one that removed the entry.
        self.redis.zrem(self.keys.scheduled, job)
        self.redis.set(self.keys.job(job), to_json(told | {"status": "pending"}))
        self.redis.lpush(self.keys.waiting("default", told["priority"]), job)


class Mosquito(ForeignClient):
    """Mosquito, with the sorted sets of its document."""

    doubles = True

    def __init__(self, url: str, queue: str, worker: str) -> None:
        super().__init__(url, queue, worker)
        self.keys = MosquitoKeys(queue)

    def take(self) -> str:
        popped = self.redis.zpopmin(self.keys.waiting)
        if not popped:
            return ""
        job = str(popped[0][0])
        now_ms = self.now_ms()
        self.redis.zadd(self.keys.overseers, {self.worker: now_ms // 1_000})
        self.redis.zadd(self.keys.pending, {job: now_ms})
        if not self.redis.hexists(self.keys.run(job), "type") or self.redis.ttl(self.keys.run(job)) >= 0:
            self.redis.zrem(self.keys.pending, job)
            return ""
        self.redis.hset(self.keys.run(job), "overseer_id", self.worker)
        return job

    def payload(self, job: str) -> str:
        fields = self.redis.hgetall(self.keys.run(job))
        given = {name: text for name, text in fields.items() if name not in METADATA}
        return to_json(given) if fields else ""

    def active(self) -> list[str]:
        return self.redis.zrange(self.keys.pending, 0, 50)

    def finish(self, job: str) -> bool:
        self.redis.zrem(self.keys.pending, job)
        return bool(self.redis.expire(self.keys.run(job), 1))

    def delete(self, job: str) -> None:
        self.redis.zrem(self.keys.pending, job)
        self.redis.delete(self.keys.run(job))

    def move(self) -> None:
        if found := self.redis.zrange(self.keys.waiting, 0, 0):
            self.redis.zadd(self.keys.waiting, {found[0]: self.now_ms()}, xx=True)

    def due(self) -> list[str]:
        return self.redis.zrangebyscore(self.keys.scheduled, 0, self.now_ms(), 0, 10)

    def rests(self, job: str) -> bool:
        return (self.redis.zscore(self.keys.scheduled, job) or 0) > self.now_ms()

    def waiting(self) -> list[str]:
        return self.redis.zrange(self.keys.waiting, 0, 20)

    def promote(self, job: str, copy: str) -> None:
        # In two steps, and whether it was the one that removed the entry it does not ask.
        self.redis.zrem(self.keys.scheduled, job)
        if self.redis.exists(self.keys.run(job)):
            self.redis.zadd(self.keys.waiting, {job: self.now_ms()})


class Bridge(ForeignClient):
    """BridgeMQ: pops an id, then locks it. Jobs that need others or ask for a certain worker are left to the engine."""

    #: Data and status of a job stay for ever, and a child whose parent has none would wait for ever.
    deletes = False
    keys = BridgeKeys("bridge:")

    def take(self) -> str:
        job = self.redis.lindex(self.keys.waiting, 0)
        told = json.loads(self.redis.get(self.keys.data(job)) or "{}") if job else {}
        if not told or told.get("dependsOn") or any(told.get("target", {}).values()):
            return ""
        if not self.redis.lrem(self.keys.waiting, 1, job):
            return ""
        if not self.redis.set(self.keys.lock(job), self.worker, nx=True, px=LOCK_MS):
            return ""
        self.redis.sadd(self.keys.active, job)
        self.redis.set(self.keys.status(job), "active")
        return str(job)

    def payload(self, job: str) -> str:
        raw = self.redis.get(self.keys.data(job))
        return to_json(json.loads(raw)["payload"]) if raw else ""

    def active(self) -> list[str]:
        return sorted(self.redis.smembers(self.keys.active))[:50]

    def finish(self, job: str) -> bool:
        now_ms = self.now_ms()
        result = {"success": True, "data": None, "completedAt": now_ms, "processingTime": 0}
        self.redis.set(self.keys.result(job), to_json(result), ex=86_400)
        self.redis.set(self.keys.status(job), "completed")
        self.redis.srem(self.keys.active, job)
        self.redis.delete(self.keys.lock(job))
        return True

    def move(self) -> None:
        self.redis.lmove(self.keys.waiting, self.keys.waiting, "LEFT", "RIGHT")

    def due(self) -> list[str]:
        return self.redis.zrangebyscore(self.keys.delayed, 0, self.now_ms(), 0, 10)

    def rests(self, job: str) -> bool:
        return (self.redis.zscore(self.keys.delayed, job) or 0) > self.now_ms()

    def waiting(self) -> list[str]:
        return self.redis.lrange(self.keys.waiting, 0, 20)

    def promote(self, job: str, copy: str) -> None:
        # The published script is one step.
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.watch(self.keys.delayed)
            if pipe.zscore(self.keys.delayed, job) is None:
                return
            pipe.multi()
            pipe.rpush(self.keys.waiting, job)
            pipe.zrem(self.keys.delayed, job)
            try:
                pipe.execute()
            except redis.WatchError:
                return


CLIENTS: dict[str, type[ForeignClient]] = {"bull": Bull, "bananas": Bananas, "mosquito": Mosquito, "bridge": Bridge}
