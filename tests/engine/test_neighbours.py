"""One key that another program has written hides and stops nothing else: each row plants garbage beside healthy neighbours, and
all looks and a worker serve those."""

from collections.abc import Callable
from typing import Any

import pytest

from engine import Queue, Worker
from engine import queues as all_queues
from engine.models.lanes_keys import LanesKeys
from tests.engine.using import at_work, some_handlers, wait_until

DEEP = "[" * 100_000
KEYS = LanesKeys("q")
Plant = Callable[[Any], Any]


def _list(key: str) -> Plant:
    def plant(client: Any) -> None:
        client.delete(key)
        client.rpush(key, "x")

    return plant


def _due(client: Any, field: str, value: object) -> None:
    """The schedule of the bad one is due, as somebody else has left it."""
    client.zadd(KEYS.cron, {"bad": 1})
    client.hset(KEYS.schedule("bad"), mapping={"next_ms": 1, field: value})


#: What is planted, and where.
PLANTED: dict[str, Plant] = {
    "job of another type": _list(KEYS.job("bad")),
    "job that is no envelope": lambda client: client.set(KEYS.job("bad"), b"\xff\xfe"),
    "delayed job of another type": _list(KEYS.job("bad-later")), "run of another type": _list(KEYS.run("bad")),
    "run that is none": lambda client: client.set(KEYS.run("bad"), b"\xff"),
    "child of another type": _list(KEYS.job("bad-child")), "needs of another type": _list(KEYS.needs("bad-child")),
    "id that is no UTF-8": lambda client: client.zadd(KEYS.lane("send"), {b"\xff\xfe": 1}),
    "dead id that is no UTF-8": lambda client: client.zadd(KEYS.dead, {b"\xff\xfe": "inf"}),
    "beat of another type": lambda client: client.zadd(KEYS.workers, {"bad": 2**47}) and _list(KEYS.worker("bad"))(client),
    "beat of words": lambda client: client.zadd(KEYS.workers, {"bad": "inf"}) and client.set(KEYS.worker("bad"), "a b c d e"),
    "beat too deep": lambda client: (
        client.zadd(KEYS.workers, {"bad": 2**47}) and client.set(KEYS.worker("bad"), f"1 2 3 4 {DEEP}")
    ),
    "schedule of another type": lambda client: client.zadd(KEYS.cron, {"bad": 1}) and _list(KEYS.schedule("bad"))(client),
    "timing too deep": lambda client: _due(client, "timing", DEEP),
    "policy too deep": lambda client: _due(client, "policy", DEEP),
    "next tick that is no time": lambda client: _due(client, "next_ms", "9" * 400),
    "pause of words": lambda client: client.hset(KEYS.paused, "bad", "a b c"),
    "limit of words": lambda client: client.hset(KEYS.limits, "n:bad", "words"),
    "class that is no UTF-8": lambda client: client.hset(KEYS.classes, b"\xff@x~y", b"\xff"),
    "queue that is no UTF-8": lambda client: client.zadd(KEYS.queues, {b"\xff": "inf"}),
    "times that are none": lambda client: client.zadd(KEYS.took, {"bad": 1.5}) and client.hset(KEYS.took_by("bad"), "ok:x", "y"),
    "event without fields": lambda client: client.xadd(KEYS.events, {b"\xff": b"\xff"}),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANTED)
def test_whatever_one_key_holds_its_neighbours_are_served(queue: Queue, ironclaim_url: str, what: str, client: Any) -> None:
    ran: list[str] = []
    for name in ("bad", "good"):
        queue.enqueue("send", {"n": 1}, id=name)
        queue.enqueue("send", {"n": 1}, id=f"{name}-later", delay_ms=1)
        queue.enqueue("send", {"n": 1}, id=f"{name}-child", needs=[name])
        queue.schedules.put(name, "send", {"n": 1}, every_ms=3_600_000)
    PLANTED[what](client)
    client.zadd(KEYS.cron, {"good": 1})
    client.hset(KEYS.schedule("good"), "next_ms", 1)
    look(queue, ironclaim_url)
    handlers = some_handlers(lambda job: ran.append(job.id), "send")
    with at_work(Worker(queue, handlers, concurrency=2, sweep_ms=20, presence=False)):
        wait_until(lambda: {"good", "good-later", "good-child"} <= {*ran} and any("cron:good" in job for job in ran), "all ran")
        look(queue, ironclaim_url)


def look(queue: Queue, url: str) -> None:
    """All looks answer, and show the healthy ones."""
    for state in ("waiting", "delayed", "active", "dead", "blocked", "finished"):
        queue.jobs.list(state)
        queue.jobs.page(state)
    asks: list[Any] = [queue.counts, queue.obstacles, queue.limits, queue.stats, queue.snapshot, queue.metrics]
    for ask in (*asks, queue.jobs.counts_by_name, queue.workers.list, queue.dead.list):
        ask()
    queue.jobs.why("good")
    assert "good" in [schedule.name for schedule in queue.schedules.list()]
    assert "q" in [known.name for known in all_queues(url=url)]
