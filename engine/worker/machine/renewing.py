"""A worker's renewals: when the next one is due, and its call. Pure code, a part of the step machine.

They come as often as its beats at least, however long its leases are: a renewal shows life as a beat does, on a connection of its
own, so a worker whose beats alone are lost is not taken for dead (orphans.lua).
"""

from __future__ import annotations

from engine.operations import Extend, Lease
from engine.server_clock import ServerClock
from engine.worker.machine.calls import RESEND_MS
from engine.worker.machine.events import MS, Settings


class Renewing:
    """All leases in one call, at each third of a lease (rules 9 and 13), or with each beat where that comes sooner."""

    def __init__(self, settings: Settings, clock: ServerClock, now_ns: int) -> None:
        self._lease_ms = settings.lease_ms
        self._every_ns = min(settings.lease_ms * MS // 3, settings.beat_ms * MS or settings.lease_ms * MS)
        self._clock = clock
        self._count = 0
        #: When the next renewal is due.
        self.at_ns = now_ns + self._every_ns

    def soon(self, now_ns: int) -> None:
        """The last one came to nothing."""
        self.at_ns = now_ns + RESEND_MS * MS

    def came_late(self, done_ns: int) -> None:
        """The last one came too late to count. Its reply has set the clock right, so the next one need not wait."""
        self.at_ns = min(self.at_ns, done_ns + RESEND_MS * MS)

    def begin(self, now_ns: int) -> None:
        """A renewal is due: the next one follows."""
        self.at_ns = now_ns + self._every_ns  # anchor: leases-are-renewed-early

    def next_renewal(self, leases: list[Lease], now_ns: int) -> Extend | None:
        """The call, None when there is nothing to renew."""
        if not leases or not self._clock.known:
            return None
        self._count += 1
        return Extend(tuple(leases), self._count, self._lease_ms, self._clock.now_ms(now_ns) + self._lease_ms // 3)
