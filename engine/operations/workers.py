"""Workers and what processes share beside jobs: beats, the listing of workers, how long handlers took, locks, and the
write that a replica is waited for with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from engine.operations.declaration import Declaration


@dataclass(frozen=True, slots=True)
class Beat(Declaration, script="beat", patient=False):
    """A worker lives: until `until_ms` nobody takes its leases for orphaned. 0: it has ended. (incarnation, counter) is the
    identity. `about` is JSON for people; `others`: further incarnations whose leases it still has."""

    incarnation: str
    counter: int
    ttl_ms: int
    until_ms: int
    lease_ms: int
    about: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Beaten:
    """`leads`: this worker is the one whose sweeps come at once (the others follow); `orphaned`: workers have stopped beating and
    may have left leases."""

    srv_us: int
    result: Literal["ok", "repeated", "left"]
    leads: bool
    orphaned: bool


@dataclass(frozen=True, slots=True)
class ListWorkers(Declaration, script="workers"):
    """One page of the workers."""

    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class ListedWorker:
    """As a beat told it. Alive while `until_ms` is ahead of the server's time."""

    incarnation: str
    until_ms: int
    ttl_ms: int
    lease_ms: int
    about: str
    leads: bool


@dataclass(frozen=True, slots=True)
class ListedWorkers:
    """One page, those that lived longest last."""

    srv_us: int
    workers: tuple[ListedWorker, ...]


@dataclass(frozen=True, slots=True)
class AcquireLock(Declaration, script="lock_acquire", slots={"op": "token"}):
    """Take a lock that nobody holds, for `ttl_ms`. The token is the identity."""

    name: str
    token: str
    ttl_ms: int
    not_after_ms: int


@dataclass(frozen=True, slots=True)
class ExtendLock(Declaration, script="lock_extend"):
    """Hold a lock for `ttl_ms` from now. (token, counter) is the identity."""

    name: str
    token: str
    counter: int
    ttl_ms: int
    not_after_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseLock(Declaration, script="lock_release", slots={"op": "token"}):
    """Give a lock back. The token is the identity."""

    name: str
    token: str


@dataclass(frozen=True, slots=True)
class LockReply:
    """`held`: until `until_ms`, under this fence; `released`; `taken`: by somebody else until then; `lost`: it was not held any
    more; `refused`: the call came too late."""

    srv_us: int
    result: Literal["held", "released", "taken", "lost", "refused"]
    fence: int = 0
    until_ms: int = 0

    @property
    def refused(self) -> bool:
        """True when the call came too late and was not applied."""
        return self.result == "refused"


@dataclass(frozen=True, slots=True)
class ReplicationProbe(Declaration, script="witness"):
    """Write one key, whatever else there is to write (rule 8)."""


#: Of the buckets that runs are counted in by their length, the last: all runs beyond 2^47 ns (39 hours) are there.
BUCKET_MAX = 95


def bucket_end_ns(bucket: int) -> float:
    """Where a bucket of lengths ends. Bucket b > 0 begins where b - 1 ends; two of them double."""
    return 2 ** (bucket / 2)


class RunTimes(NamedTuple):
    """How long runs of one name and outcome took: all together, the longest of them, and how many by bucket (see `Durations`)."""

    name: str
    outcome: Literal["ok", "failed"]
    total_us: int
    most_us: int
    buckets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ReportRunTimes(Declaration, script="tell_took", patient=False):
    """What a worker has measured since its last report. (incarnation, counter) is the identity; void after `not_after_ms`."""

    incarnation: str
    counter: int
    not_after_ms: int
    items: tuple[RunTimes, ...]


@dataclass(frozen=True, slots=True)
class RunTimesReported:
    """`ok`, or `repeated` for another copy of a report that was added; `refused`: it came too late and was not."""

    srv_us: int
    result: Literal["ok", "repeated", "refused"]


@dataclass(frozen=True, slots=True)
class ListRunTimes(Declaration, script="took"):
    """One page of the names with times."""

    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class ListedRunTimes:
    """For each name: the name, the time of its first report (ms), and its outcomes, one item for each."""

    srv_us: int
    names: tuple[tuple[str, int, tuple[RunTimes, ...]], ...]


WorkersOperation = Beat | ListWorkers | AcquireLock | ExtendLock | ReleaseLock | ReplicationProbe | ReportRunTimes | ListRunTimes
WorkersReply = Beaten | ListedWorkers | LockReply | RunTimesReported | ListedRunTimes
