"""The jobs that a worker holds: leased and not yet started, or running, each with the end of its lease on the worker's clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from engine.operations import Lease, LeasedJob
from engine.step_values import MS


@dataclass(slots=True, eq=False)
class _Held:
    job: LeasedJob
    lease_until_ns: int
    lost: bool = False
    told: bool = False


class InHand:
    """Keyed by lease, not by job: a worker that froze may be given a job again while the old handler still runs.

    A lease is counted from the monotonic instant at which its claim, or its last renewal that was answered, was *first sent*:
    the server can only have started counting later (rule 9).
    """

    def __init__(self, lease_ms: int) -> None:
        self._lease_ns = lease_ms * MS
        self._ready: deque[_Held] = deque()
        self._running: dict[Lease, _Held] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._running)

    def add(self, jobs: Iterable[LeasedJob], first_send_ns: int) -> None:
        """Take claimed jobs in."""
        self._ready.extend(_Held(job, first_send_ns + self._lease_ns) for job in jobs)

    def start(self, concurrency: int, now_ns: int) -> tuple[list[LeasedJob], list[Lease]]:
        """Jobs to start now, and leases to give back: no handler starts with less than a fifth of its lease left (rule 9)."""
        started: list[LeasedJob] = []
        too_late: list[Lease] = []
        while self._ready and len(self._running) < concurrency:
            held = self._ready.popleft()
            if held.lease_until_ns - now_ns < self._lease_ns // 5:
                too_late.append(held.job.lease)
            else:
                self._running[held.job.lease] = held
                started.append(held.job)
        return started, too_late

    def give_back(self) -> list[Lease]:
        """Everything that has not started leaves the hand."""
        leases = [held.job.lease for held in self._ready]
        self._ready.clear()
        return leases

    def ended(self, lease: Lease) -> LeasedJob:
        """A handler has ended: its job leaves the hand."""
        return self._running.pop(lease).job

    def leases(self) -> list[Lease]:
        """Leases to renew: all but those that are known to be lost."""
        return [held.job.lease for held in (*self._ready, *self._running.values()) if not held.lost]

    def renewed(self, lease: Lease, first_send_ns: int) -> None:
        """A renewal was answered."""
        held = self._find(lease)
        if held is not None:
            held.lease_until_ns = first_send_ns + self._lease_ns

    def lose(self, lease: Lease) -> bool:
        """The server has ended this lease. True when its handler has not been told yet; a job that has not started leaves the
        hand."""
        held = self._find(lease)
        if held is None or held.lost:
            return False
        held.lost = True
        if held in self._ready:
            self._ready.remove(held)
        fresh, held.told = not held.told, True
        return fresh

    def run_out(self, now_ns: int) -> list[Lease]:
        """Leases of running jobs that were not renewed in time by this worker's clock, each once. They may still hold on the
        server, so they go on being renewed."""
        over = [held for held in self._running.values() if not held.told and held.lease_until_ns <= now_ns]
        for held in over:
            held.told = True
        return [held.job.lease for held in over]

    def next_end_ns(self) -> int | None:
        """When the next lease of a running job runs out by this worker's clock."""
        return min((held.lease_until_ns for held in self._running.values() if not held.told), default=None)

    def _find(self, lease: Lease) -> _Held | None:
        return self._running.get(lease) or next((held for held in self._ready if held.job.lease == lease), None)
