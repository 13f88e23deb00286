"""The maintenance that every worker does: promotions, reaps, waits for work, and updates for workers, each with its reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.wire.operations.declaration import Declaration
from engine.wire.operations.jobs import Lease
from engine.wire.operations.raw_replies import one_of, server_us
from engine.wire.operations.schedules import DueSchedule, number


@dataclass(frozen=True, slots=True)
class Promote(Declaration, script="promote", slots={"most_ms": "sleep_max_ms"}):
    """Make due jobs claimable. (incarnation, counter) is the identity; reaps and promotions count together."""

    incarnation: str
    counter: int
    limit: int
    sleep_max_ms: int

    def parse(self, raw: Any, decode: object) -> Promoted:
        """The raw reply as a value: six words for each schedule that is due."""
        promoted = int(raw[2][0]) if raw[2] else 0
        corrupt = tuple(job.decode() for job in raw[2][1:])
        texts = [word.decode(errors="replace") for word in raw[3]]
        due = [
            DueSchedule(name, version, number(expected_ms), number(anchor_ms), timing, policy)
            for name, version, expected_ms, anchor_ms, timing, policy in zip(*[iter(texts)] * 6, strict=True)
        ]
        return Promoted(server_us(raw), promoted, int(raw[1]), corrupt, tuple(due), int(raw[4]))


@dataclass(frozen=True, slots=True)
class Promoted:
    """How many due jobs became claimable, and the first of the schedules that are due. `corrupt`: ids that the script could not
    read and buried. `version` of the news."""

    srv_us: int
    promoted: int
    sleep_ms: int
    corrupt: tuple[str, ...] = ()
    due: tuple[DueSchedule, ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True)
class Reap(Declaration, script="reap", slots={"most_ms": "sleep_max_ms"}):
    """Take expired leases away; jobs that have crashed too often are buried. (incarnation, counter) is the identity. `orphans`:
    instead of expired ones those of workers that have stopped beating."""

    incarnation: str
    counter: int
    limit: int
    sleep_max_ms: int
    done_max: int
    orphans: bool = False

    def parse(self, raw: Any, decode: object) -> Reaped:
        """The raw reply as a value: five words for each lease."""
        leases: list[tuple[Lease, int]] = []
        jobs: dict[str, list[str]] = {kind: [] for kind in _REAPED_KINDS}
        for kind, job, fence, nonce, crashes in zip(*[iter(raw[2])] * 5, strict=True):
            jobs[one_of(kind, _REAPED_KINDS)].append(job.decode())
            if nonce != b"-":
                leases.append((Lease(job.decode(), int(fence), nonce.decode()), int(crashes)))
        return Reaped(server_us(raw), int(raw[1]), tuple(leases), tuple(jobs["buried"]), tuple(jobs["corrupt"]))


_REAPED_KINDS = ("reaped", "buried", "corrupt")


@dataclass(frozen=True, slots=True)
class Reaped:
    """The leases that were taken away, each with the job's crash counter. `buried`: ids that had crashed too often; `corrupt`:
    ids that the script could not read and buried. Where a sweep was cut off, an id may stand there without its lease."""

    srv_us: int
    sleep_ms: int
    leases: tuple[tuple[Lease, int], ...]
    buried: tuple[str, ...] = ()
    corrupt: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait(Declaration, label="wait for work"):
    """Block until one of the classes, at most 15, may have work, or something is new to workers that know this version of the
    news (None: it is not waited for); at most `block_ms`."""

    block_ms: int
    classes: tuple[str, ...]
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Woken:
    """`marker`: that of a class was there, `news`: that of the news; none when the block ran out."""

    marker: bool
    news: bool = False


@dataclass(frozen=True, slots=True)
class ReadWorkerUpdates(Declaration, script="read_worker_updates"):
    """Ask what is new to a worker that knows this version: classes with targets, and what is set for the worker."""

    version: int
    worker: str

    def parse(self, raw: Any, decode: object) -> WorkerUpdates:
        """The raw reply as a value."""
        flat = [text.decode() for text in raw[4]]
        targets = tuple(zip(flat[::2], flat[1::2], strict=True))
        return WorkerUpdates(server_us(raw), int(raw[1]), int(raw[2]), None if raw[3] < 0 else int(raw[3]), targets)


@dataclass(frozen=True, slots=True)
class WorkerUpdates:
    """The news: classes with their targets (JSON), how many handlers the worker runs at once (0: as it was started), and its
    pause (None: there is none, 0: until it is resumed, else the ms that are left)."""

    srv_us: int
    version: int
    concurrency: int
    pause_ms: int | None
    targets: tuple[tuple[str, str], ...]


SweepsOperation = Promote | Reap | Wait | ReadWorkerUpdates
SweepsReply = Promoted | Reaped | Woken | WorkerUpdates
