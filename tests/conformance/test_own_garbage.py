"""What somebody has written over the engine's own keys beside an old keyspace stops no neighbour: looks, claims, ends and sweeps
serve the others."""

from collections.abc import Callable
from typing import Any

from engine.ops.claims import Bury, Finish
from tests.conformance.desk import STATES, ModelDesk, about
from tests.conformance.models import FOREIGN, only
from tests.engine.desk import LEASE_MS

pytestmark = only(FOREIGN)
DEEP = "[" * 100_000
Plant = Callable[[ModelDesk], Any]


def _list(desk: ModelDesk, key: str) -> None:
    desk.redis.delete(key)
    desk.redis.rpush(key, "x")


def _run(desk: ModelDesk) -> str:
    return desk.keys.run(desk.ids["bad"])


def _schedule(desk: ModelDesk, field: str, value: str) -> None:
    """A schedule of this engine that is due, as somebody else has left it."""
    desk.redis.zadd(desk.keys.cron, {"bad": 1})
    desk.redis.hset(desk.keys.schedule("bad"), mapping={"next_ms": 1, field: value})


#: What is planted before the jobs are claimed.
PLANTED: dict[str, Plant] = {
    "run of another type": lambda desk: _list(desk, _run(desk)),
    "run of words": lambda desk: desk.redis.hset(_run(desk), mapping={"fence": "x", "claims": "y", "crashes": "z"}),
    "run that is no UTF-8": lambda desk: desk.redis.hset(
        _run(desk), mapping={b"\xff": b"\xfe", "error": b"\xff", "errors": "many"}
    ),
    "pause of words": lambda desk: desk.redis.hset(desk.keys.paused, "other", "a b c"),
    "limit of words": lambda desk: desk.redis.hset(desk.keys.limits, "n:other", "words"),
    "slots of another type": lambda desk: (
        desk.redis.hset(desk.keys.limits, "n:other", "1 0 0 fixed"),
        _list(desk, f"{desk.keys.prefix}held:n:other"),
    ),
    "schedule of another type": lambda desk: (
        desk.redis.zadd(desk.keys.cron, {"bad": 1}),
        _list(desk, desk.keys.schedule("bad")),
    ),
    "timing too deep": lambda desk: _schedule(desk, "timing", DEEP),
    "policy too deep": lambda desk: _schedule(desk, "policy", DEEP),
    "job too deep": lambda desk: _schedule(desk, "job", DEEP),
    "next tick that is no time": lambda desk: _schedule(desk, "next_ms", "9" * 400),
    "times that are none": lambda desk: (
        desk.redis.zadd(desk.keys.took, {"bad": 1.5}),
        desk.redis.hset(desk.keys.took_by("bad"), "ok:x", "y"),
    ),
    "beat of another type": lambda desk: (
        desk.redis.zadd(desk.keys.workers, {"bad": 2**47}),
        _list(desk, desk.keys.worker("bad")),
    ),
    "result of another type": lambda desk: _list(desk, desk.keys.result(desk.ids["bad"])),
}


def _look(desk: ModelDesk) -> None:
    for state in STATES:
        desk.queue.jobs.list(state)
        desk.queue.jobs.page(state)
    queue = desk.queue
    for ask in (queue.counts, queue.snapshot, queue.metrics, queue.workers.list, queue.schedules.list):
        ask()


def test_neighbours_of_what_stands_in_own_keys_are_served(desk: ModelDesk) -> None:
    for what, plant in PLANTED.items():
        desk.begin()
        with about(what):
            neighbours_are_served(desk, plant)


def neighbours_are_served(desk: ModelDesk, plant: Plant) -> None:
    plant(desk.put("bad", "good"))
    _look(desk)
    ran: list[str] = []
    for _ in range(3):
        claimed = desk.run(desk.claim_operation(limit=10, classes=("main", "__default__")))
        for failure in claimed.unreadable:
            desk.run(Bury((failure,)))
        if claimed.jobs:
            desk.run(Finish(tuple(job.lease for job in claimed.jobs)))
        ran += [job.lease.job for job in claimed.jobs]
        desk.tick(1_100).sweep()
    assert desk.ids["good"] in ran
    _look(desk)
    counts = desk.queue.counts()
    assert (counts.waiting, counts.active) == (0, 0)


def test_neighbours_of_a_lease_whose_run_cannot_be_read_end_and_come_back(desk: ModelDesk) -> None:
    leases = {label: job.lease for label, job in desk.put("bad", "good", "lost").take().items()}
    _list(desk, _run(desk))
    assert list(desk.run(Finish((leases["bad"], leases["good"]))).items) == [("stale", ""), ("ok", "finished")]
    _look(desk)
    assert "lost" in desk.past(LEASE_MS + 1).take("b")
    assert desk.redis.lrange(_run(desk), 0, -1) == [b"x"], "it belongs to somebody else"
    _look(desk)
    assert desk.queue.counts().waiting == 0
