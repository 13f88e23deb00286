"""The queue of a capacity measurement for its workers: the handler waits as long as its job says, and its times are noted.

    IRONCLAIM_TIMED='{"model": "lanes", "url": "redis://...", "queue": "capacity", "file": "worker-1.times"}' \\
        python -m engine worker bench.timed_handlers:queue

The history would cost more than what is measured. So a finished job leaves one line, `<job> <start ns> <end ns> <reported ns>` on
the monotonic clock, which all processes of a machine share: when its handler began and ended, and when the server had answered
the call that reported the end. The lines of a call are one unbuffered write.
"""

from __future__ import annotations

import os
import time
from typing import Any

import engine
from bench import models
from bench.arrivals import NAME
from bench.capacity_steps import TIMED_VARIABLE, Timed
from bench.workload import plan_of
from engine.observer import Intended, Outcome, ServerIdentity
from engine.ops.claims import Finish, LeasedJob
from engine.ops.jobs import Lease
from engine.redis.call import Call


class Times:
    """The observer of a worker. Of a run that failed nothing is noted; here none does."""

    def __init__(self, file: str) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._ran: dict[Lease, tuple[int, int]] = {}

    def invoked(self, call: Call[Any], first_send_ns: int, intended_ns: Intended) -> object:
        return None

    def completed(self, call: Call[Any], ticket: object, outcome: Outcome) -> None:
        if not isinstance(call.operation, Finish) or outcome.reply is None:
            return
        lines = [
            f"{lease.job} {ran[0]} {ran[1]} {outcome.done_ns}\n"
            for lease in call.operation.leases
            if (ran := self._ran.pop(lease, None)) is not None
        ]
        os.write(self._file, "".join(lines).encode())

    def connected(self, server: ServerIdentity) -> None:
        return

    def configured(self, config: object) -> None:
        return

    def handler_started(self, job: LeasedJob, start_ns: int) -> object:
        return None

    def handler_ended(self, job: LeasedJob, ticket: object, start_ns: int, end_ns: int, error: str | None) -> None:
        self._ran[job.lease] = (start_ns, end_ns)


_timed = Timed.read(os.environ[TIMED_VARIABLE])
queue = models.queue(_timed.model, _timed.queue, url=_timed.url, observer=Times(_timed.file))


@queue.handlers(NAME)
def run(job: engine.Job) -> None:
    """Wait like a handler that asks another service: it holds a place and no processor."""
    time.sleep(plan_of(job.payload)["work_ms"] / 1000)
