"""A desk on a Bananas keyspace under virtual time, and the ways in which foreign clients write jobs there."""

import json
from datetime import UTC, datetime
from typing import Any, Self

import pytest

from chaos.foreign_keys import BananasKeys
from engine import models
from tests.engine.desk import LEASE_MS, Desk, lent
from tests.engine.ops import Attributes, Bury, Claim, Claimed, Enqueue, Failure, Finish, Lease, LeasedJob, Options, Retry, Value

DAY_S = 86_400
#: START_MS as it stands in jobs.
START = "2100-01-01T01:06:40Z"


class BananasDesk(Desk):
    """One keyspace in one layout."""

    def __init__(self, url: str, layout: models.BananasLayout, **settings: Any) -> None:
        self.layout = layout
        super().__init__(url, models.Bananas(layout=layout, **settings))

    def list_key(self, route: str = "default", priority: str = "normal") -> str:
        """Where jobs wait."""
        return BananasKeys(layout=self.layout).waiting(route, priority)

    # -- our side

    def put(self, *jobs: str, payload: bytes = b'{"u":1}', name: str = "main", **options: Any) -> Self:
        """Enqueue jobs with these bytes."""
        not_after_ms = self.now_ms + 10_000
        for job in jobs:
            nonce = job.encode().ljust(8, b"-")[:8]
            assert self.run(Enqueue(job, name, payload, nonce, Options(**options), not_after_ms=not_after_ms)).result == "created"
        return self

    def take(self, limit: int = 10, **more: Any) -> list[LeasedJob]:
        """The next claim of a worker."""
        return list(self.claimed(limit, **more).jobs)

    def one(self, worker: str = "a", limit: int = 10, **more: Any) -> LeasedJob:
        """The same, where it is a single one."""
        (job,) = self.take(limit, worker=worker, **more)
        return job

    def claimed(self, limit: int = 10, *, worker: str = "a", names: tuple[str, ...] = ("main",), **more: Any) -> Claimed:
        """The same, with all that it tells; also of some `routes` and `priorities`."""
        attributes = Attributes(worker, routes=frozenset(more.get("routes", ("default",))))
        void_ms, who = self.now_ms + LEASE_MS * 4 // 5, (worker * 16, self._count(worker))
        return self.run(Claim(*who, limit, LEASE_MS, void_ms, worker, 1000, names, 1000, more.get("priorities"), attributes))

    def succeed(self, lease: Lease, value: bytes | None = None, took_ms: int = 12) -> tuple[str, str]:
        """Finish a run, with what its handler returned."""
        values = () if value is None else (Value(0, value, 3_600_000, took_ms),)
        return self.run(Finish((lease,), values=values)).items[0]

    def fail(self, lease: Lease, error: str = "boom", delay_ms: int = 2000) -> tuple[str, str]:
        """A run that failed."""
        return self.run(Retry((Failure(lease, error, delay_ms),))).items[0]

    def bury(self, lease: Lease, error: str = "boom") -> tuple[str, str]:
        """A run after which there is no other."""
        return self.run(Bury((Failure(lease, error),))).items[0]

    def move(self, ms: int) -> Self:
        """Move the clock, and leave keys whose time to live is the server's where they are."""
        self.now_ms += ms
        self.queue.use_test_clock(self.now_ms)
        return self

    # -- foreign clients

    def go(self, job: str, *, name: str = "main", payload: str = '{"u":1}', priority: str = "normal", **more: Any) -> Self:
        """What a Go client writes: SET, then LPUSH. `raw`: another body; `route`: a routing key; the rest are members."""
        raw, route = more.pop("raw", None), more.pop("route", "default")
        body = {"status": "pending", "created_at": START, "updated_at": START, "attempts": 0, "max_retries": 3, **more}
        routing = {"routing_key": route}
        head = json.dumps({"id": job, "name": name}, separators=(",", ":"))[:-1]
        tail = {"status": body.pop("status"), "priority": priority}
        ordered = {**tail, **routing, **body} if self.layout == "document" else {**tail, **body, **routing}
        text = f'{head},"payload":{payload},{json.dumps(ordered, separators=(",", ":"))[1:]}'
        self.redis.set(f"bananas:job:{job}", text if raw is None else raw)
        self.redis.lpush(self.list_key(route, priority), job)
        return self

    def sdk(self, job: str, *, payload: Any = None, due_s: float | None = None, priority: str = "normal", **more: Any) -> Self:
        """What the Python client writes: spaces, empty texts, and the job in the list of the default route whatever its routing
        key; with a time, a score with a fraction and a status that Go does not write."""
        stamp = iso(self.now_ms)
        body = {"id": job, "name": "main", "description": "", "payload": {"u": 1} if payload is None else payload}
        body |= {"status": "pending" if due_s is None else "scheduled", "priority": priority, "created_at": stamp}
        body |= {"updated_at": stamp, "attempts": 0, "max_retries": 3, "error": "", "routing_key": "default", **more}
        if due_s is not None:
            body["scheduled_for"] = iso(int(due_s * 1000))
        self.redis.set(f"bananas:job:{job}", json.dumps(body))
        if due_s is None:
            self.redis.lpush(self.list_key("default", priority), job)
        else:
            self.redis.zadd("bananas:queue:scheduled", {job: due_s})
        return self

    # -- raw keys

    def body(self, job: str) -> dict[str, Any]:
        """The job's JSON."""
        return json.loads(self.text(job))

    def text(self, job: str) -> str:
        """The job as it is stored."""
        return self.redis.get(f"bananas:job:{job}").decode()

    def ids(self, key: str) -> list[str]:
        """A list, from the end at which jobs are taken."""
        return [raw.decode() for raw in reversed(self.redis.lrange(key, 0, -1))]  # type: ignore[arg-type]

    def processing(self) -> list[str]:
        return self.ids("bananas:queue:processing")

    def dead(self) -> list[str]:
        return self.ids("bananas:queue:dead")

    def waiting(self, route: str = "default", priority: str = "normal") -> list[str]:
        return self.ids(self.list_key(route, priority))

    def scheduled(self) -> dict[str, float]:
        return {job.decode(): score for job, score in self.redis.zrange("bananas:queue:scheduled", 0, -1, withscores=True)}

    def result(self, job: str) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.redis.hgetall(f"bananas:result:{job}").items()}

    def ttl_s(self, key: str) -> float | None:
        """Seconds to live; None = for ever."""
        left: Any = self.redis.pttl(key)
        return None if left == -1 else left / 1000


def iso(ms: int) -> str:
    """As Python's isoformat has it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


@pytest.fixture(params=["document", "live", "routed"])
def desk(request: pytest.FixtureRequest, ironclaim_url: str) -> Any:
    """Each layout, one after the other."""
    yield from lent(BananasDesk(ironclaim_url, request.param))
