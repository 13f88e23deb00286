"""The queue of a capacity measurement for its workers: the handler waits as long as its job says, and its times are noted.

    IRONCLAIM_TIMED='{"model": "lanes", "url": "redis://...", "queue": "capacity", "file": "worker-1.times"}' \\
        python -m engine worker bench.timed_handlers:queue
"""

from __future__ import annotations

import os
import time

import engine
from bench import models
from bench.arrivals import NAME
from bench.capacity_steps import TIMED_VARIABLE, Timed
from bench.handler_times import Times
from bench.workload import plan_of

_timed = Timed.read(os.environ[TIMED_VARIABLE])
queue = models.queue(_timed.model, _timed.queue, url=_timed.url, observer=Times(_timed.file))


@queue.handlers(NAME)
def run(job: engine.Job) -> None:
    """Wait like a handler that asks another service: it holds a place and no processor."""
    time.sleep(plan_of(job.payload)["work_ms"] / 1000)
