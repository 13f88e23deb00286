"""Two versions of the engine on one keyspace, as during a rolling deploy: a queue that an older engine has left is worked off by
this one. `recorded/` holds such queues as commands, with jobs in every state, limits, unique keys and pauses; what was recorded
before the format of envelopes and leases was settled has been carried over to it."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from engine import Queue
from tests.engine.using import Claim, Finish, Lease, Sweep, run_texts

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))
CLASSES = ("work", "limited", "keyed", "rated", "paused", "soon", "bulk")
LEASE_MS = 9_000


class Recorded:
    """A recorded queue, in the virtual time of its recording."""

    def __init__(self, path: Path, url: str) -> None:
        found = json.loads(path.read_text())
        self.redis: Any = redis.Redis.from_url(url)
        for words in found["commands"]:
            self.redis.execute_command(*[word.encode(found["encoding"]) for word in words])
        self.queue, self.now_ms, self.counter = Queue("recorded", url=url), found["now_ms"], 0
        self.tick(0)

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        self.queue.model.now_ms = self.now_ms
        self.queue.driver.clock.learn(self.now_ms * 1000, time.monotonic_ns())

    def run(self, operation: Any) -> Any:
        return self.queue.driver.run(self.queue.model.call(operation))

    def claim(self, limit: int = 100) -> Any:
        self.counter += 1
        not_after_ms = self.now_ms + LEASE_MS * 4 // 5
        return self.run(Claim("f" * 16, self.counter, limit, LEASE_MS, not_after_ms, "new", 1000, CLASSES)).jobs

    def sweep(self) -> None:
        self.counter += 1
        self.run(Sweep("e" * 16, self.counter, 1000, 1000, 1000))

    def lease(self, job: str) -> Lease:
        fields = run_texts(self.redis, self.queue.model.keys.run(job))
        return Lease(job, int(fields["fence"]), fields["nonce"])


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def old(request: pytest.FixtureRequest, ironclaim_url: str) -> Any:
    made = Recorded(request.param, ironclaim_url)
    with made.queue, made.redis:
        yield made


def test_what_an_older_engine_has_left_is_worked_off_by_this_one(old: Recorded) -> None:
    snapshot = old.queue.snapshot().states
    jobs = {job for state in ("waiting", "delayed", "active") for job, _ in snapshot[state]}
    assert len(jobs) == 27 and len(snapshot["dead"]) == 2 and len(snapshot["done"]) == 1
    finished: Counter[str] = Counter()
    payloads, at_once = set[str](), 0
    for _ in range(12):
        while claimed := old.claim():
            names = Counter(job.name for job in claimed)
            at_once = max(at_once, names["limited"])
            assert names["keyed"] <= 1 and names["paused"] == 0
            payloads |= {json.dumps(json.loads(job.payload)) for job in claimed}
            assert {result for result, _ in old.run(Finish(tuple(job.lease for job in claimed))).items} == {"ok"}
            finished.update(job.lease.job for job in claimed)
        old.tick(1000)
        old.sweep()
    assert payloads == {json.dumps({"n": 1, "text": "\u00e9"})}
    assert {job for job in jobs if not finished[job]} == {"paused-0", "paused-1"}
    assert 1 <= at_once <= 2 and set(finished.values()) == {1}
    old.queue.resume("paused")
    assert sorted(job.lease.job for job in old.claim()) == ["paused-0", "paused-1"]
    counts = old.queue.counts()
    assert (counts.waiting, counts.delayed, counts.active, counts.dead) == (0, 0, 2, 2)


def test_the_older_workers_that_still_run_end_their_jobs(old: Recorded) -> None:
    """Leases, tokens and limits of both versions are the same ones."""
    lease = old.lease("active-0")
    assert old.run(Finish((lease,))).items == (("ok", "finished"),)
    assert old.run(Finish((lease,))).items == (("repeated", "finished"),)
    assert "limited" not in {job.name for job in old.claim()}, "their places are taken"
    held = tuple(old.lease(job) for job in ("limited-held-1", "keyed-held"))
    assert {result for result, _ in old.run(Finish(held)).items} == {"ok"}
    assert Counter(job.name for job in old.claim()) == {"limited": 1, "keyed": 1}


def test_unique_and_dedup_keys_of_the_older_engine_hold(old: Recorded) -> None:
    queue = old.queue
    reply = queue.enqueue("work", 1, id="second", unique="u")
    assert (reply.result, reply.holder, reply.state) == ("duplicate", "unique", "waiting")
    assert queue.enqueue("work", 1, id="third", dedup="d", dedup_ms=1000).holder == "dedup"
    assert queue.enqueue("work", 1, id="fourth", unique="dead-0").created, "a dead job releases its key"
    assert queue.enqueue("work", 1, id="finished").state == "finished"
    assert run_texts(old.redis, queue.model.keys.run("dead-1"))["error"] == "no good"
