"""One subscription to the control channels of several workers of a process, on a real server."""

from typing import Any

import redis

from engine.logs import Source
from engine.redis.endpoint import Endpoint
from engine.worker.connections import Control, Controls
from engine.worker.machine.events import Subscribed
from tests.engine.helpers.waiting import wait_until


def worker(controls: Controls, name: str) -> tuple[Control, list[Any]]:
    """A worker that keeps what it is told."""
    said: list[Any] = []
    channels = (f"{name}:control", f"{name}:control:worker")
    return Control(controls, channels, said.append, lambda: False, 1.0, Source("worker", name), presence=True), said


def test_a_worker_that_leaves_at_once_does_not_keep_the_others_from_being_told(ironclaim_url: str) -> None:
    controls = Controls(Endpoint(ironclaim_url), gather_s=0.05)
    stays, said = worker(controls, "stays")
    leaves, other = worker(controls, "leaves")
    stays.start()
    leaves.start()
    leaves.close()
    try:
        wait_until(lambda: bool(said), "the one that stays has subscribed")
        assert isinstance(said[0], Subscribed) and other == []
        with redis.Redis.from_url(ironclaim_url) as client:
            assert client.pubsub_numsub("stays:control", "leaves:control") == [(b"stays:control", 1), (b"leaves:control", 0)]
    finally:
        stays.close()


def test_the_last_one_that_leaves_ends_the_gathering(ironclaim_url: str) -> None:
    controls = Controls(Endpoint(ironclaim_url), gather_s=3_600.0)
    first, said = worker(controls, "first")
    first.start()
    timer = controls._timer  # pyright: ignore[reportPrivateUsage]
    first.close()
    assert timer is not None and controls._timer is None and said == []  # pyright: ignore[reportPrivateUsage]
    timer.join(120)
    assert not timer.is_alive()
