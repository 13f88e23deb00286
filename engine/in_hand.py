"""The jobs that a worker holds: leased and not yet started, or running, each with the end of its lease on the worker's clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.operations import Lease, LeasedJob
from engine.step_values import MS


@dataclass(slots=True, eq=False)
class _Held:
    job: LeasedJob
    lease_until_ns: int
    #: When it was taken, and from its start on when it was started.
    since_ns: int
    marked: bool = False
    lost: bool = False
    told: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """What may begin now: handlers to start, leases to give back because too little is left of them, and the lease of a job that
    starts once it is marked."""

    started: tuple[LeasedJob, ...] = ()
    too_late: tuple[Lease, ...] = ()
    mark: Lease | None = None


class InHand:
    """Keyed by lease, not by job: a worker that froze may be given a job again while the old handler still runs.

    A lease is counted from the monotonic instant at which its claim, or its last renewal that was answered, was *first sent*:
    the server can only have started counting later (rule 9). At most one job with a crash behind it is marked or runs (rule 12).
    """

    def __init__(self, lease_ms: int) -> None:
        self._lease_ns = lease_ms * MS
        self._ready: deque[_Held] = deque()
        # Its mark is on the way, and a handler's place is kept for it.
        self._marking: _Held | None = None
        self._running: dict[Lease, _Held] = {}
        # The one job with a crash behind it that is being marked or runs.
        self._crashed: Lease | None = None

    def __len__(self) -> int:
        return len(self._ready) + len(self._running) + (self._marking is not None)

    def add(self, jobs: Iterable[LeasedJob], first_send_ns: int, now_ns: int) -> None:
        """Take claimed jobs in."""
        self._ready.extend(_Held(job, first_send_ns + self._lease_ns, now_ns) for job in jobs)

    def begin(self, concurrency: int, now_ns: int) -> Begun:
        """Fill the free places. No handler starts with less than a fifth of its lease left (rule 9)."""
        places = concurrency - len(self._running) - (self._marking is not None)
        started: list[LeasedJob] = []
        too_late: list[Lease] = []
        waiting: list[_Held] = []
        mark: Lease | None = None
        while self._ready and places > 0:
            held = self._ready.popleft()
            lease = held.job.lease
            if held.lease_until_ns - now_ns < self._lease_ns // 5:
                self._uncrash(lease)
                too_late.append(lease)
            elif not held.job.crashes or held.marked:
                held.since_ns = now_ns
                self._running[lease] = held
                started.append(held.job)
                places -= 1
            elif self._crashed is None:
                self._crashed = mark = lease
                self._marking = held
                places -= 1
            else:
                waiting.append(held)
        self._ready.extendleft(reversed(waiting))
        return Begun(tuple(started), tuple(too_late), mark)

    def is_marking(self, lease: Lease) -> bool:
        """Whether this job still waits for its mark."""
        return self._marking is not None and self._marking.job.lease == lease

    def marked(self, lease: Lease) -> None:
        """The mark was answered: the job is the next to start."""
        if self._marking is not None and self.is_marking(lease):
            self._marking.marked = True
            self._ready.appendleft(self._marking)
            self._marking = None

    def unmark(self, lease: Lease) -> list[Lease]:
        """The mark cannot be set: the job leaves the hand."""
        if not self.is_marking(lease):
            return []
        self._marking = None
        self._uncrash(lease)
        return [lease]

    def give_back(self) -> list[Lease]:
        """Everything that has not started leaves the hand."""
        leases = [held.job.lease for held in self._ready]
        self._ready.clear()
        if self._marking is not None:
            leases += self.unmark(self._marking.job.lease)
        for lease in leases:
            self._uncrash(lease)
        return leases

    def give_back_idle(self, ahead: int, waited_ns: int, now_ns: int) -> list[Lease]:
        """What has waited so long for a place, beyond `ahead` jobs, leaves the hand. A job that waits because another one with a
        crash behind it runs would only come back, so it stays."""
        over = [held for held in self._ready if not held.job.crashes][ahead:]
        idle = [held for held in over if now_ns - held.since_ns >= waited_ns]
        for held in idle:
            self._ready.remove(held)
        return [held.job.lease for held in idle]

    def ended(self, lease: Lease, now_ns: int) -> tuple[LeasedJob, int]:
        """A handler has ended: its job leaves the hand. Returns the job and the time that it took."""
        held = self._running.pop(lease)
        self._uncrash(lease)
        return held.job, now_ns - held.since_ns

    @property
    def has_crashed(self) -> bool:
        """Whether a job with a crash behind it is in hand."""
        return self._crashed is not None or any(held.job.crashes for held in self._ready)

    @property
    def startable(self) -> int:
        """Jobs that start as soon as a handler is free."""
        return sum(not held.job.crashes for held in self._ready)

    def oldest_wait_ns(self) -> int | None:
        """Since when a job waits for a free handler."""
        return min((held.since_ns for held in self._ready if not held.job.crashes), default=None)

    def running_since_ns(self) -> Iterator[int]:
        """When each running handler was started, oldest first."""
        return (held.since_ns for held in self._running.values())

    def leases(self) -> list[Lease]:
        """Leases to renew: all but those that are known to be lost."""
        return [held.job.lease for held in self._all() if not held.lost]

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
        if held is self._marking:
            self.unmark(lease)
        elif held in self._ready:
            self._ready.remove(held)
            self._uncrash(lease)
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

    def _all(self) -> list[_Held]:
        return [*self._ready, *([self._marking] if self._marking is not None else []), *self._running.values()]

    def _find(self, lease: Lease) -> _Held | None:
        return self._running.get(lease) or next((held for held in self._all() if held.job.lease == lease), None)

    def _uncrash(self, lease: Lease) -> None:
        if self._crashed == lease:
            self._crashed = None
