"""What a worker still has to acknowledge: jobs whose handlers have ended, jobs that never started, and jobs
that go on elsewhere after an error. Pure code, a part of the state machine."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from engine.ops.base import CALL_BYTES_MAX, Operation
from engine.ops.claims import Bury, Drop, DropOutcome, Failure, LeasedJob, Release, Retry, Value
from engine.ops.jobs import Enqueue, Lease, reroute_target
from engine.worker.machine.events import MS

#: A finish waits at most this long for others to travel with.
LINGER_MS = 5
#: The same as that of a producer: how long the enqueue may be sent.
SEND_MS = 10_000


class Reroute(NamedTuple):
    """A job, what its run ended with, and where it goes: a name, or a queue, a colon and a name."""

    job: LeasedJob
    failure: Failure
    target: str

    @property
    def queue(self) -> str:
        """The queue that the job goes to; '' for its own."""
        return reroute_target(self.target)[0]


class Rerouting:
    """Jobs that go on elsewhere after an error (rule 27). First each is enqueued at its target under the id
    `<id>>reroute`; then its lease ends here. One at a time, in their order; the first stays first until the
    server has answered for it."""

    def __init__(self) -> None:
        #: In their order.
        self.waiting: deque[Reroute] = deque()

    def add(self, job: LeasedJob, failure: Failure, target: str) -> None:
        """Append a job."""
        self.waiting.append(Reroute(job, failure, target))

    @property
    def first(self) -> Reroute:
        """The job that is rerouted next, if any."""
        return self.waiting[0]

    def enqueue(self, now_ms: int) -> Enqueue:
        """Of the first one, at this server time. Its nonce is made of the token of the lease: what another
        lease has sent is there already, and this one a duplicate. The rules come along but for the reroute,
        so that no two names play ping-pong."""
        job, _, target = self.first
        lease = job.lease
        token = f"{lease.job} {lease.fence} {lease.nonce}".encode()
        options = replace(
            job.options, unique="", needs=(), on_parent_failure="bury", reroute_on=(), expires_ms=0
        )
        _, name = reroute_target(target)
        nonce = hashlib.blake2b(token, digest_size=8).digest()
        return Enqueue(
            f"{lease.job}>reroute", name, job.payload, nonce, options, not_after_ms=now_ms + SEND_MS
        )

    def answered(self) -> Reroute:
        """Remove the first job: it has been enqueued at its target, or never can be."""
        return self.waiting.popleft()

    def leases(self) -> list[Lease]:
        """Leases of the jobs that wait; they have to be renewed meanwhile."""
        return [reroute.job.lease for reroute in self.waiting]


#: Runs that failed in one call, each with its stack trace.
FAILURES_MAX = 200


class PendingAcknowledgements:
    """Ends of leases that wait to be sent. Finishes wait a moment for others and travel with a claim; the
    other ends go first."""

    def __init__(self) -> None:
        #: Finishes that have not been sent.
        self.finishes: list[Lease] = []
        self._finishes_since_ns = 0
        # What the handlers of finishes returned, by lease: ttl_ms, took_ms, JSON.
        self._values: dict[Lease, tuple[int, int, bytes]] = {}
        self._failures: list[Failure] = []
        self._releases: list[Lease] = []
        # Those of them whose handlers were interrupted.
        self._interrupted: set[Lease] = set()
        self._burials: list[Failure] = []
        self._drops: list[tuple[Lease, DropOutcome, str]] = []
        #: Jobs that go on elsewhere: their ends follow on that.
        self.rerouting = Rerouting()

    def __bool__(self) -> bool:
        ends = self.finishes or self._failures or self._releases or self._burials or self._drops
        return bool(ends or self.rerouting.waiting)

    def finish(self, lease: Lease, now_ns: int) -> None:
        """Add the finish of a job whose handler has returned."""
        if not self.finishes:
            self._finishes_since_ns = now_ns
        self.finishes.append(lease)

    def keep(self, job: LeasedJob, result: bytes, took_ns: int) -> None:
        """Store the return value that is sent with a finish."""
        self._values[job.lease] = (job.options.result_ttl_ms, took_ns // MS, result)

    def retry(self, failure: Failure) -> None:
        """Add the failure of a run."""
        self._failures.append(failure)

    def release(self, leases: Iterable[Lease], *, started: bool = False) -> None:
        """Give back the leases of jobs that will not start in this worker, or of `started` ones whose
        handlers were interrupted."""
        self._releases.extend(leases)
        if started:
            self._interrupted.update(leases)

    def bury(self, failures: Iterable[Failure]) -> None:
        """Bury jobs that cannot run, or must not run again."""
        self._burials.extend(failures)

    def drop(self, lease: Lease, outcome: DropOutcome, error: str = "") -> None:
        """End a job without a finish, because of this error."""
        self._drops.append((lease, outcome, error))

    @property
    def linger_until_ns(self) -> int | None:
        """The latest time to send the finishes, monotonic ns (rule 21); None without any."""
        # anchor: finishes-linger-briefly
        return self._finishes_since_ns + LINGER_MS * MS if self.finishes else None

    def lingers(self, startable: int, now_ns: int, *, more: int = 0) -> bool:
        """Whether the finishes, and so many `more` that would be added now, wait for company: for 5 ms, and
        only while more jobs wait for a handler (rule 21)."""
        count = len(self.finishes)
        in_time = now_ns < self._finishes_since_ns + LINGER_MS * MS if count else bool(more)
        return in_time and count + more < startable  # anchor: finishes-linger-while-handlers-are-busy

    def take_end(self) -> Operation | None:
        """The next call that ends leases and is not delayed."""
        if self._failures:
            failures, self._failures = tuple(self._failures[:FAILURES_MAX]), self._failures[FAILURES_MAX:]
            return Retry(failures)
        if self._releases:
            leases, self._releases = tuple(self._releases), []
            started, self._interrupted = frozenset(self._interrupted), set()
            return Release(leases, started)
        if self._burials:
            burials, self._burials = tuple(self._burials[:FAILURES_MAX]), self._burials[FAILURES_MAX:]
            return Bury(burials)
        if self._drops:
            leases, outcomes, errors = zip(*self._drops, strict=True)
            self._drops = []
            return Drop(leases, outcomes, errors)
        return None

    def take_finishes(self) -> tuple[tuple[Lease, ...], tuple[Value, ...]]:
        """The finishes that go out now, and what their handlers returned: of the latter at most 1 MiB, or
        one."""
        leases, self.finishes = tuple(self.finishes), []
        if not self._values:
            return leases, ()
        values: list[Value] = []
        size = 0
        for item, lease in enumerate(leases):
            kept = self._values.get(lease)
            if kept is None:
                continue
            ttl_ms, took_ms, data = kept
            size += len(data)
            if size > CALL_BYTES_MAX and values:
                # The rest goes with the next call, which the machine makes as long as something is pending.
                self.finishes = list(leases[item:])
                leases = leases[:item]
                break
            del self._values[lease]
            values.append(Value(item, data, ttl_ms, took_ms))  # anchor: each-result-belongs-to-its-job
        return leases, tuple(values)

    def leases(self) -> list[Lease]:
        """Leases whose ends have not been sent; without renewals they would be reaped meanwhile."""
        if not (self._failures or self._burials or self._drops or self.rerouting.waiting):
            return [*self.finishes, *self._releases]
        told = [failure.lease for failure in (*self._failures, *self._burials)]
        return [
            *self.finishes,
            *self._releases,
            *told,
            *(lease for lease, _, _ in self._drops),
            *self.rerouting.leases(),
        ]
