"""What a worker may claim now: its pauses, how many handlers it may run at once, and what its gate says. Pure code, a part of the
step machine."""

from __future__ import annotations

from collections.abc import Callable

from engine.operations import Learned
from engine.worker.machine.events import MS, Settings
from engine.worker.machine.sharing import Share

#: Asked before a claim: False or 0 = nothing now, True = anything, a number = at most so many jobs.
Gate = Callable[[], "bool | int"]
#: A gate that was closed is asked again after so long.
GATE_MS = 200


class Allowance:
    """Two pauses, the worker's own and that from afar, and a gate. Jobs whose handlers run go on whatever it says."""

    def __init__(self, settings: Settings, gate: Gate | None, share: Share | None = None) -> None:
        self._concurrency = settings.concurrency
        self._gate = gate
        #: The places belong to several queues, and this says which of them are for this one.
        self.share = share
        #: Handlers of the pool that may run at once.
        self.pooled = settings.concurrency
        #: By the worker's own `pause`.
        self.paused_here = False
        # From afar: until this instant, 0 = until it is resumed.
        self._paused_until_ns: int | None = None
        self._ask_at_ns = 0

    def learned(self, reply: Learned, done_ns: int) -> None:
        """What is set from afar. More handlers than the worker was started with it cannot run."""
        self.pooled = min(reply.concurrency, self._concurrency) if reply.concurrency else self._concurrency
        if not reply.pause_ms:
            self._paused_until_ns = reply.pause_ms
        else:
            self._paused_until_ns = done_ns + reply.pause_ms * MS

    def paused(self, now_ns: int) -> bool:
        """Whether nothing may be claimed or started."""
        until_ns = self._paused_until_ns
        return self.paused_here or (until_ns is not None and (until_ns == 0 or now_ns < until_ns))

    def closed(self, now_ns: int) -> bool:
        """Whether nothing may be claimed: a pause is on, or the gate has just been found closed."""
        return self.paused(now_ns) or now_ns < self._ask_at_ns

    def most(self, free: int, leased: int, now_ns: int) -> int:
        """How many of so many jobs may be claimed; so many are leased."""
        if self.closed(now_ns):
            return 0
        most = free
        if self._gate is not None:
            said = self._gate()
            most = free if said is True else min(free, int(said))
            if most <= 0:
                self._ask_at_ns = now_ns + GATE_MS * MS
        return most if self.share is None or most <= 0 else self.share.allow(most, leased)

    def next_ns(self, now_ns: int) -> int | None:
        """When a pause ends or the gate is asked again."""
        if not self._paused_until_ns and not self._ask_at_ns:
            return None
        times = [at_ns for at_ns in (self._paused_until_ns or 0, self._ask_at_ns) if at_ns > now_ns]
        return min(times, default=None)
