"""One process that drains a queue with a worker, or runs the floor's drain, and prints the time that it took.

    python -m bench.micro.drain_process '{"url": "...", "queue": "drain", "jobs": 20000, "path": "inline", "prefetch": 64}'

Time counts from the first handler's start until the server has no waiting or active job, so it includes the last job's finish.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import redis

import engine
from bench import models
from bench.micro.floor import Floor
from bench.micro.payload import NAME
from bench.micro.place import pin_client
from bench.micro.sampler import Sampler
from bench.models import LANES

#: A drain that takes longer is assumed to have lost a job.
_DEADLINE_S = 120.0
_POLL_S = 0.001


@dataclass(frozen=True, slots=True)
class Order:
    """The queue to drain, and the path: `floor` (in batches of `prefetch`), `inline`, `threads` or `asyncio`."""

    url: str
    queue: str
    jobs: int
    path: str
    prefetch: int
    profile: bool = False
    model: str = LANES


class Tally:
    """The handler: counts the runs, and records when the first one began and whether the last one has run."""

    def __init__(self, jobs: int) -> None:
        self._next = itertools.count(1).__next__
        self._jobs = jobs
        self.first_ns = 0
        self.first_cpu_s = 0.0
        self.last = threading.Event()

    def plain(self, _job: engine.Job) -> None:
        """The handler as a function."""
        count = self._next()
        if count == 1:
            self.first_ns, self.first_cpu_s = time.monotonic_ns(), time.process_time()
        if count == self._jobs:
            self.last.set()

    async def coroutine(self, job: engine.Job) -> None:
        """The handler as a coroutine."""
        self.plain(job)


def handlers_for(path: str, tally: Tally) -> engine.Handlers:
    """The handler on one of the three paths."""
    handlers = engine.Handlers()
    if path == "asyncio":
        handlers(NAME)(tally.coroutine)
    elif path == "inline":
        handlers(NAME, inline=True)(tally.plain)
    else:
        handlers(NAME)(tally.plain)
    return handlers


def drain(order: Order) -> dict[str, Any]:
    """Drain with a worker. Return the seconds from the first start to the last finish, the CPU time, and the profile if
    requested."""
    tally = Tally(order.jobs)
    ended: list[tuple[int, float]] = []
    opened = (models.queue(order.model, order.queue, url=order.url) for _ in range(2))
    with next(opened) as queue, next(opened) as watched:
        worker = engine.Worker(queue, handlers_for(order.path, tally), name="drain", prefetch=order.prefetch)

        def watch() -> None:
            if tally.last.wait(_DEADLINE_S):
                end_s = time.monotonic() + _DEADLINE_S
                counts = watched.counts()
                while (counts.waiting or counts.active) and time.monotonic() < end_s:
                    time.sleep(_POLL_S)
                    counts = watched.counts()
                if counts.finished == order.jobs:
                    ended.append((time.monotonic_ns(), time.process_time()))
            worker.stop()

        watcher = threading.Thread(target=watch, name="watcher")
        watcher.start()
        with Sampler() if order.profile else nullcontext() as sampler:
            worker.run()
        watcher.join()
    if not ended:
        raise RuntimeError(f"drain: not every one of {order.jobs} jobs was finished within {_DEADLINE_S:.0f} s")
    ended_ns, cpu_s = ended[0]
    return {
        "seconds": (ended_ns - tally.first_ns) / 1e9,
        "cpu_s": cpu_s - tally.first_cpu_s,
        "profile": sampler.lines() if sampler else [],
    }


def drain_floor(order: Order) -> dict[str, Any]:
    """Like `drain`, for the floor."""
    plain = redis.Redis.from_url(order.url)
    floor, cpu_s = Floor(plain, int(plain.connection_pool.connection_kwargs["port"])), time.process_time()
    jobs, seconds = floor.drain(order.prefetch)
    if jobs != order.jobs:
        raise RuntimeError(f"floor: {jobs} of {order.jobs} jobs")
    return {"seconds": seconds, "cpu_s": time.process_time() - cpu_s, "profile": []}


if __name__ == "__main__":
    pin_client()
    asked = Order(**json.loads(sys.argv[1]))
    print(json.dumps(drain_floor(asked) if asked.path == "floor" else drain(asked)))
