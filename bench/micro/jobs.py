"""Creates and claims jobs in bulk, to prepare measurements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import redis

import engine
from bench.micro.payload import NAME, PAYLOAD
from engine.ops.base import Call
from engine.ops.claims import Claim, Claimed, Finish
from engine.ops.jobs import Lease

#: Jobs that are built at once: some 15 MB of drafts.
_PIECE = 10_000
#: Longer than any measurement, so that no lease expires.
LEASE_MS = 3_600_000
_SLEEP_MAX_MS = 1_000


def fill(queue: engine.Queue, count: int, **fields: Any) -> None:
    """Enqueue this many jobs; `fields` are those of NewJob."""
    named = {"name": NAME, "payload": PAYLOAD, **fields}
    for start in range(0, count, _PIECE):
        queue.enqueue_many([named for _ in range(min(_PIECE, count - start))])


class Claims:
    """The claim calls of one worker."""

    def __init__(self, queue: engine.Queue, classes: tuple[str, ...] = (NAME,), *, owner: int = 1) -> None:
        self._queue = queue
        self._classes = classes
        self._incarnation = f"{owner:016x}"
        self._counter = 0

    def call(self, limit: int, leases: tuple[Lease, ...] = (), lease_ms: int = LEASE_MS) -> Call[Any]:
        """The call of the next claim; if leases are given, fused with their finish."""
        self._counter += 1
        self._queue.driver.server_now_ms()
        claim = Claim(
            incarnation=self._incarnation,
            counter=self._counter,
            most=limit,
            lease_ms=lease_ms,
            not_after_ms=self._queue.driver.not_after_ms(),
            owner="bench",
            sleep_max_ms=_SLEEP_MAX_MS,
            classes=self._classes,
        )
        return self._queue.model.call(Finish(leases, claim) if leases else claim)

    def take(self, limit: int) -> tuple[Lease, ...]:
        """Lease up to `limit` jobs."""
        claimed: Claimed = self._queue.driver.run(self.call(limit))
        return tuple(job.lease for job in claimed.jobs)

    def take_all(self) -> Iterator[tuple[Lease, ...]]:
        """Lease every claimable job, in batches."""
        while leases := self.take(1_000):
            yield leases


def run_as_eval(plain: redis.Redis, call: Call[Any]) -> Any:
    """Run a call by EVAL, so that the statistics of EVALSHA do not count it."""
    assert call.script is not None
    return call.parse(plain.eval(call.script.text, len(call.keys), *call.keys, *call.arguments))  # pyright: ignore[reportArgumentType]
