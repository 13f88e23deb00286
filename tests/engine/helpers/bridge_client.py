"""A BridgeMQ client as the original behaves (reference dump): what it writes, and calls of the four published scripts by their
slots."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

from chaos.foreign_keys import BridgeKeys
from engine import models
from engine.redis.scripts import scripts_folder
from tests.conformance.desk import ModelDesk
from tests.engine.desk import lent

KEYS = BridgeKeys("bridge:")
#: A time of the reference dump; results of tests do not depend on it.
CREATED_MS = 1_795_233_256_070


def published() -> Path:
    """The folder of the four scripts."""
    return scripts_folder() / "foreign" / "bridge" / "published"


class BridgeClient:
    """Writes as the original's client does, and calls the published scripts as an operator's own worker would."""

    def __init__(self, url: str) -> None:
        self.redis: Any = redis.Redis.from_url(url, decode_responses=True)
        self.digests = {path.stem: str(self.redis.script_load(path.read_text())) for path in published().glob("*.lua")}

    def close(self) -> None:
        """Let the connections go."""
        self.redis.close()

    def data(self, job: str) -> dict[str, Any]:
        """A job's JSON."""
        return json.loads(str(self.redis.get(f"bridge:jobs:data:{job}")))

    def status(self, job: str) -> str | None:
        """A job's status."""
        return self.redis.get(f"bridge:jobs:status:{job}")

    def store(self, kind: str = "email", job: str = "", **members: Any) -> str:
        """A job's JSON in the original's order, with these members changed or added; the id."""
        job = job or str(uuid4())
        whole = {
            "jobId": job, "type": kind, "payload": {"to": "x@y"}, "schedule": {},
            "retry": {"attempts": 3, "backoff": {"type": "exponential", "delay": 2000}},
            "priority": 5, "dependsOn": [], "target": {}, "metadata": {}, "createdAt": CREATED_MS, "attempts": 0,
        }  # fmt: skip
        self.redis.set(f"bridge:jobs:data:{job}", json.dumps(whole | members, separators=(",", ":")))
        return job

    def dispatch(self, kind: str = "email", job: str = "", **members: Any) -> str:
        """A job for now; the id."""
        job = self.store(kind, job, **members)
        self.redis.set(f"bridge:jobs:status:{job}", "waiting")
        (self.redis.lpush if members.get("priority", 5) >= 7 else self.redis.rpush)("bridge:jobs:waiting", job)
        return job

    def delay(self, due_ms: int, kind: str = "email", **members: Any) -> str:
        """A job for a later time; the id."""
        job = self.store(kind, schedule={"delay": 60_000}, **members)
        self.redis.set(f"bridge:jobs:status:{job}", "delayed")
        self.redis.zadd("bridge:jobs:delayed", {job: due_ms})
        return job

    def cron(self, next_ms: int, expression: str = "*/5 * * * *", kind: str = "email", **members: Any) -> str:
        """An entry of the cron set; the id."""
        members.setdefault("schedule", {"cron": expression, "timezone": "America/New_York"})
        job = self.store(kind, **members)
        self.redis.set(f"bridge:jobs:status:{job}", "cron")
        self.redis.zadd("bridge:jobs:cron", {job: next_ms})
        return job

    def register(self, name: str, **members: Any) -> None:
        """A worker's entry, without a heartbeat: the first one comes an interval later."""
        about = {"serverId": name, "stack": "node", "region": "us-east", "capabilities": ["email"], "lastSeen": _now_ms()}
        self.redis.set(f"bridge:workers:{name}", json.dumps(about | members | {"pid": 27943, "hostname": "vm"}))
        self.redis.sadd("bridge:workers:active", name)

    def claim(self, worker: str = "worker-1", lock_s: int = 30, **has: list[str]) -> dict[str, Any] | None:
        """`claim_job`: the job's JSON, or None."""
        wanted = [json.dumps(has.get(category, [])) for category in ("stack", "capabilities", "region")]
        keys = [f"bridge:{name}" for name in ("jobs:waiting", "jobs:active", "queues:paused")]
        prefixes = [f"bridge:{name}" for name in ("jobs:data:", "jobs:lock:", "ratelimit:concurrent:")]
        raw = self.call("claim_job", keys, [worker, *wanted, _now_ms(), lock_s, *prefixes])
        return None if raw is None else json.loads(raw)

    def release(self, job: str, worker: str = "worker-1", kind: str = "email") -> int:
        """`release_lock`: 1 or 0."""
        keys = [f"bridge:{name}" for name in (f"jobs:lock:{job}", "jobs:active", f"ratelimit:concurrent:{kind}")]
        return self.call("release_lock", keys, [worker, job])

    def process_delayed(self, now_ms: int, batch: int = 100) -> int:
        """`process_delayed`: how many were moved."""
        return self.call("process_delayed", ["bridge:jobs:delayed", "bridge:jobs:waiting"], [now_ms, batch])

    def process_cron(self, now_ms: int, batch: int = 100) -> str:
        """`process_cron`: JSON, as it is."""
        keys = [f"bridge:{name}" for name in ("jobs:cron", "jobs:waiting", "jobs:data:")]
        return self.call("process_cron", keys, [now_ms, batch])

    def complete(self, job: str, data: Any, worker: str = "worker-1", kind: str = "email") -> int:
        """What the original does with the value of a handler, and the release behind it."""
        result = {"success": True, "data": data, "completedAt": _now_ms(), "processingTime": 0}
        self.redis.set(f"bridge:jobs:result:{job}", json.dumps(result, separators=(",", ":")), ex=86400)
        self.redis.set(f"bridge:jobs:status:{job}", "completed")
        return self.release(job, worker, kind)

    def call(self, script: str, keys: list[str], arguments: list[Any]) -> Any:
        """One published script."""
        return self.redis.evalsha(self.digests[script], len(keys), *keys, *arguments)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def desk(ironclaim_url: str) -> Iterator[ModelDesk]:
    """The engine's side of a Bridge keyspace."""
    yield from lent(ModelDesk(ironclaim_url, models.Bridge()))


@pytest.fixture
def client(ironclaim_url: str) -> Iterator[BridgeClient]:
    """The original's side of it."""
    yield from lent(BridgeClient(ironclaim_url))


def waiting(client: BridgeClient) -> list[str]:
    """The ids that wait, the next one first."""
    return client.redis.lrange(KEYS.waiting, 0, -1)
