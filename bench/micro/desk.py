"""A queue on a private server, with helpers that prepare what a measured call needs."""

from __future__ import annotations

import os
import socket
from typing import Any

import redis

import engine
from bench.micro.jobs import Claims, run_as_eval
from bench.micro.payload import NAME, PAYLOAD
from engine.ops.admin import AdminAction, Alter
from engine.ops.base import Call
from engine.ops.claims import Failure
from engine.ops.jobs import Enqueue, EnqueueMany, Lease
from engine.ops.schedules import PutSchedule, TickPolicy, Timing
from engine.queue import producing
from engine.redis.endpoint import DEADLINE_MS

#: Jobs of one call.
BATCH = 10

#: The worker that sweeps, ticks and beats.
INCARNATION = "00000000000000b2"


class Desk:
    """One queue on its server, with helpers that prepare what a script needs."""

    def __init__(self, queue: engine.Queue, plain: redis.Redis, classes: tuple[str, ...] = (NAME,)) -> None:
        self.queue, self.plain = queue, plain
        self.claims = Claims(queue, classes)
        self._counter = 0
        #: Connections of others, which stay open as long as this server runs.
        self.sockets: list[socket.socket] = []
        self.queue.driver.server_now_ms()

    def enqueues(self, count: int, name: str = NAME, **options: Any) -> tuple[Enqueue, ...]:
        """Operations that create this many jobs."""
        void_ms, most = self.void_ms(), self.queue.payload_bytes_max
        return tuple(producing.draft(name, PAYLOAD, most, options=options).stamped(void_ms) for _ in range(count))

    def void_ms(self) -> int:
        """The time after which a call made now is void."""
        return self.queue.driver.not_after_ms()

    def call(self, operation: Any) -> Call[Any]:
        """The call of an operation."""
        return operation if isinstance(operation, Call) else self.queue.model.call(operation)

    def prepare(self, operation: Any) -> Any:
        """Run an operation that is not measured; return its reply."""
        return run_as_eval(self.plain, self.call(operation))

    def waiting(self, count: int = BATCH, **options: Any) -> tuple[str, ...]:
        """Enqueue this many jobs; return their ids."""
        made = self.enqueues(count, **options)
        self.prepare(EnqueueMany(made))
        return tuple(job.job for job in made)

    def leased(self, count: int = BATCH, **options: Any) -> tuple[Lease, ...]:
        """Enqueue and lease this many jobs."""
        self.waiting(count, **options)
        return tuple(job.lease for job in self.prepare(self.claims.call(count)).jobs)

    def failed(self) -> tuple[Failure, ...]:
        """Lease jobs, and return failures of their handlers."""
        return tuple(Failure(lease, "RuntimeError: planned", 60_000) for lease in self.leased())

    def counter(self) -> int:
        """The counter of the next sweep."""
        self._counter += 1
        return self._counter

    def alter(self, action: AdminAction, jobs: tuple[str, ...], state: str) -> Alter:
        """The operation that does this to jobs in this state."""
        return Alter(action, jobs, state, not_after_ms=self.void_ms())

    def put_schedule(self, **options: Any) -> PutSchedule:
        """The operation that makes a schedule which is due now."""
        (job,) = self.enqueues(1, **options)
        name, due_ms = os.urandom(8).hex(), self.void_ms() - DEADLINE_MS
        return PutSchedule(name, Timing(every_ms=1000), TickPolicy(), job, due_ms, due_ms, None, not_after_ms=self.void_ms())

    def version_of(self, put: PutSchedule) -> str:
        """The version of a schedule."""
        version: Any = self.plain.hget(self.queue.model.keys.schedule(put.schedule), "version")
        return version.decode()
