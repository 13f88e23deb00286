"""A queue on a private server, with helpers that prepare what a measured call needs."""

from __future__ import annotations

import socket
from typing import Any

import redis

import engine
from bench.micro.jobs import Claims, run_as_eval
from bench.micro.payload import NAME, PAYLOAD
from engine.ops.claims import Failure
from engine.ops.jobs import Enqueue, EnqueueMany, Lease
from engine.queue import producing

#: Jobs of one call.
BATCH = 10


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

    def waiting(self, count: int = BATCH, **options: Any) -> None:
        """Enqueue this many jobs."""
        run_as_eval(self.plain, self.queue.model.call(EnqueueMany(self.enqueues(count, **options))))

    def leased(self, count: int = BATCH, **options: Any) -> tuple[Lease, ...]:
        """Enqueue and lease this many jobs."""
        self.waiting(count, **options)
        return tuple(job.lease for job in run_as_eval(self.plain, self.claims.call(count)).jobs)

    def failed(self) -> tuple[Failure, ...]:
        """Lease jobs, and return failures of their handlers."""
        return tuple(Failure(lease, "RuntimeError: planned", 60_000) for lease in self.leased())

    def counter(self) -> int:
        """The counter of the next sweep."""
        self._counter += 1
        return self._counter
