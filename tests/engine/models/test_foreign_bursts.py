"""A burst on a foreign format ends although jobs wait that its worker may not run, and not before it has run its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from engine import Queue, Target, models
from engine.bananas_worker import read
from tests.engine.helpers.at_work import Book, make_worker

#: No lease ends that is not meant to, however busy the machine is.
QUICK: dict[str, Any] = {"sweep_ms": 50, "lease_ms": 60_000}


def burst(worker: Any) -> None:
    """Run a worker until its burst is over, which must not take more than a minute."""
    thread = threading.Thread(target=worker.run, kwargs={"burst": True}, daemon=True)
    thread.start()
    thread.join(60)
    over = not thread.is_alive()
    worker.stop()
    thread.join(20)
    assert over


def put_bridge(queue: Queue) -> None:
    queue.enqueue("work", {}, id="gpu", target=Target(capabilities=["gpu"]))
    queue.enqueue("work", {}, id="plain")
    for parent in ("gpu", "plain"):
        queue.enqueue("work", {}, id=f"child-of-{parent}", needs=[parent])


def put_bananas(queue: Queue) -> None:
    for route in ("default", "gpu", "mail"):
        queue.enqueue("work", {}, id=route, route=route)


@pytest.mark.parametrize(
    ("model", "put", "first", "ours", "second", "all_jobs"),
    [
        pytest.param(
            models.Bridge,
            put_bridge,
            {},
            ["child-of-plain", "plain"],
            {"capabilities": ["gpu"]},
            ["child-of-gpu", "gpu"],
            marks=pytest.mark.feature("BQ15", model="bridge"),
        ),
        pytest.param(
            models.Bananas,
            put_bananas,
            {"routes": ["gpu"]},
            ["gpu"],
            {"routes": ["default", "mail"]},
            ["default", "mail"],
            marks=pytest.mark.feature("BN04", model="bananas"),
        ),
    ],
)
def test_a_burst_leaves_to_others_what_asks_for_others(
    model: Any,
    put: Callable[[Queue], None],
    first: dict[str, Any],
    ours: list[str],
    second: dict[str, Any],
    all_jobs: list[str],
    ironclaim_url: str,
) -> None:
    book = Book()
    with Queue("q", model(), url=ironclaim_url) as queue:
        put(queue)
        burst(make_worker(queue, book, "first", **first, **QUICK))
        assert sorted(book.by("first")) == ours and queue.counts().waiting == len(all_jobs)
        burst(make_worker(queue, book, "second", **second, **QUICK))
        assert sorted(book.by("second")) == all_jobs and queue.counts().waiting == 0


@pytest.mark.feature("BN23", model="bananas")
def test_a_burst_leaves_jobs_of_other_priorities(ironclaim_url: str) -> None:
    book = Book()
    with Queue("q", models.Bananas(), url=ironclaim_url) as queue:
        for job, priority in (("low", 1), ("normal", 5), ("high", 10)):
            queue.enqueue("work", {}, id=job, priority=priority)
        environ = {"WORKER_MODE": "specialized", "WORKER_PRIORITIES": "normal"}
        burst(read(environ).worker(queue, book.handlers("w", "work")))
        assert book.by("w") == ["normal"] and queue.counts().waiting == 2
