"""The observer of a capacity measurement: it notes when handlers ran, and nothing else, because the history costs more than that.

A job that has ended leaves one line, `<job> <start ns> <end ns> <reported ns>` on the monotonic clock, which all processes of a
machine share: when its last run began and ended, and when the server had answered the call that reported the end. The lines of
a call are one unbuffered write. A line of JSON is what a worker has configured.

    IRONCLAIM_OBSERVER=bench.handler_times:observer IRONCLAIM_TIMED='{"model": "", "url": "redis://...", "queue": "shop", ...}'

has a process of a service note them, and leads all of its queues to that url.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from bench.capacity_steps import TIMED_VARIABLE, Timed
from engine.observer import VARIABLE, Intended, Outcome, ServerIdentity
from engine.ops.base import Call
from engine.ops.claims import Bury, Drop, Finish, LeasedJob, Retry
from engine.ops.jobs import Lease
from record.environment import Leading

#: How the last lease of a job ends that a failed run has used up.
DEAD = "buried"


class Times:
    """The observer of a worker. Of a run that failed and comes again nothing is noted. `leads_to`: as of `engine.observer`."""

    def __init__(self, file: str, leads_to: str | None = None) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._ran: dict[Lease, tuple[int, int]] = {}
        self.leads_to = leads_to

    def invoked(self, call: Call[Any], first_send_ns: int, intended_ns: Intended) -> object:
        """Nothing."""

    def completed(self, call: Call[Any], ticket: object, outcome: Outcome) -> None:
        """A line for each job that this call has ended for good."""
        if outcome.reply is None:
            return
        lines = [
            f"{lease.job} {ran[0]} {ran[1]} {outcome.done_ns}\n"
            for lease, for_good in ended(call.operation, outcome.reply)
            if (ran := self._ran.pop(lease, None)) is not None and for_good
        ]
        if lines:
            os.write(self._file, "".join(lines).encode())

    def connected(self, server: ServerIdentity) -> None:
        """Nothing."""

    def configured(self, config: Mapping[str, object]) -> None:
        """A line with the settings of the worker."""
        os.write(self._file, (json.dumps(dict(config)) + "\n").encode())

    def handler_started(self, job: LeasedJob, start_ns: int) -> object:
        """Nothing."""

    def handler_ended(self, job: LeasedJob, ticket: object, start_ns: int, end_ns: int, error: str | None) -> None:
        """Keep when it ran until the end of its lease is reported."""
        self._ran[job.lease] = (start_ns, end_ns)


def ended(operation: object, reply: Any) -> Iterator[tuple[Lease, bool]]:
    """The leases that a call has ended, and whether the job was over by that."""
    if isinstance(operation, Finish | Drop):
        yield from ((lease, True) for lease in operation.leases)
    elif isinstance(operation, Bury):
        yield from ((failure.lease, True) for failure in operation.failures)
    elif isinstance(operation, Retry):
        ways = (way for _, way in reply.items)
        yield from ((failure.lease, way == DEAD) for failure, way in zip(operation.failures, ways, strict=True))


def timed(told: Timed) -> dict[str, str]:
    """The variables by which a process notes the times of a queue, and leads all of its queues to the url."""
    return {VARIABLE: f"{__name__}:{observer.__name__}", TIMED_VARIABLE: told.written()}


def observer(queue: str) -> Times | Leading:
    """What notes the times of the queue that is measured; other queues are only led to its server."""
    told = Timed.read(os.environ[TIMED_VARIABLE])
    return Times(told.file, told.url) if queue == told.queue else Leading(told.url)
