"""The jobs that wait in a worker for one kind of place, and those that run there. Pure code, a part of the lease table."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from engine.ops.base import immutable
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Lease
from engine.worker.machine.events import Start


@dataclass(slots=True, eq=False)
class Held:
    """One leased job."""

    job: LeasedJob
    lease_until_ns: int
    #: When it was taken, and from its start on when it was started.
    since_ns: int
    marked: bool = False
    lost: bool = False
    told: bool = False
    #: Its run was told as failed while its handler goes on.
    stuck: bool = False
    #: It runs in a batch that another job leads, and takes no place of its own.
    follows: bool = False


class RunQueue:
    """The jobs of one kind in the order of their claims, and those of them that run: at most `places`, batches counted as one."""

    __slots__ = ("crashed", "followers", "inline", "places", "ready", "running")

    def __init__(self, places: int, *, inline: bool) -> None:
        self.places = places
        self.inline = inline
        self.ready: deque[Held] = deque()
        #: How many of `ready` have a crash behind them.
        self.crashed = 0
        self.running: dict[Lease, Held] = {}
        #: How many of `running` follow in a batch.
        self.followers = 0

    @property
    def free(self) -> int:
        """Handlers that may be started now."""
        return self.places - len(self.running) + self.followers

    @property
    def startable(self) -> int:
        """Jobs that start as soon as a handler is free."""
        return len(self.ready) - self.crashed

    def running_since_ns(self) -> Iterator[int]:
        """When each running handler was started, oldest first."""
        return (held.since_ns for held in self.running.values() if not held.follows)

    def oldest(self) -> Held | None:
        """The job that has waited longest for a free handler."""
        return next((held for held in self.ready if not held.job.crashes), None) if self.startable else None

    def gather(self, head: Held, most: int, least_until_ns: int, now_ns: int) -> tuple[list[LeasedJob], list[Lease]]:
        """The batch that starts with this job, which has left `ready`: with those of its name and lane that are here now, in
        their order, and no one with a crash behind it, for that runs alone (rule 12). Also the leases that end too soon."""
        if head.job.crashes:
            return [head.job], []
        batch, too_late, rest = [head.job], list[Lease](), deque[Held]()
        for held in self.ready:
            job = held.job
            if len(batch) == most or job.crashes or job.name != head.job.name or job.lane != head.job.lane:
                rest.append(held)
            elif held.lease_until_ns < least_until_ns:
                too_late.append(job.lease)
            else:
                held.since_ns, held.follows = now_ns, True
                self.running[job.lease] = held
                self.followers += 1
                batch.append(job)
        self.ready = rest
        return batch, too_late

    def pop(self, lease: Lease) -> Held:
        """Remove a job whose handler has ended."""
        held = self.running.pop(lease)
        self.followers -= held.follows
        return held


@immutable
class Begun:
    """What may begin now: handlers to start, leases to give back because they end too soon, and the lease of a job that starts
    once it is marked."""

    started: tuple[Start, ...] = ()
    too_late: tuple[Lease, ...] = ()
    mark: Lease | None = None


NOTHING = Begun()
