"""Workers and what processes share beside jobs: beats, the listing of workers, how long handlers took, locks, and the
write that a replica is waited for with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

from engine.ops.base import DeadlineBound, Operation, immutable, one_of, server_us, text, whole
from engine.ops.jobs import Lease


@immutable
class Beat(Operation, script="beat", patient=False):
    """A worker lives: until `until_ms` nobody takes its leases for orphaned. 0: it has ended. (incarnation, counter) is the
    identity. `sweep_ms` is its sweep interval, by which it would find the leader silent. `about` is JSON for people; `others`:
    further incarnations whose leases it still has. `connection`: client id and run id of its control connection, '' where
    there is none by which others may see that it lives."""

    incarnation: str
    counter: int
    ttl_ms: int
    until_ms: int
    lease_ms: int
    sweep_ms: int
    about: str
    others: tuple[str, ...] = ()
    connection: str = ""

    def parse(self, raw: Any, decode: object) -> Beaten:
        """The raw reply as a value."""
        result, looks = one_of(raw[1], _BEAT_RESULTS), len(raw) > 7 and raw[7] == 1
        return Beaten(server_us(raw), result, raw[2] == 1, raw[3] == 1, int(raw[4]), int(raw[5]), looks)


BeatResult = Literal["ok", "repeated", "left"]
_BEAT_RESULTS = get_args(BeatResult)


@immutable
class Beaten:
    """`leads`: this worker is the one that sweeps (the others follow); `orphaned`: workers have stopped beating and may have left
    leases; `turn_ms`: in so long it is this follower's turn to look after the leader, with a beat (0: when the next one is due
    anyway); `version` of the news; `looks`: nobody looks at the control connections of workers, so this follower has to
    (rule 39)."""

    srv_us: int
    result: BeatResult
    leads: bool
    orphaned: bool
    turn_ms: int = 0
    version: int = 0
    looks: bool = False


@immutable
class ListWorkers(Operation, script="workers"):
    """One page of the workers."""

    offset: int
    limit: int

    def parse(self, raw: Any, decode: object) -> ListedWorkers:
        """The raw reply as a value: the leader, then three values for each worker."""
        triples = zip(*[iter(raw[2])] * 3, strict=True)
        return ListedWorkers(server_us(raw), tuple(ListedWorker.read(values, raw[1]) for values in triples))


@immutable
class ListedWorker:
    """As a beat told it. Alive while `until_ms` is ahead of the server's time."""

    incarnation: str
    until_ms: int
    ttl_ms: int
    lease_ms: int
    about: str
    leads: bool

    @classmethod
    def read(cls, values: Sequence[bytes], leader: bytes) -> ListedWorker:
        """From the values of a reply: incarnation, until_ms and the last heartbeat."""
        incarnation, until_ms, beat = values
        # Of a former incarnation, and of a heartbeat that has run out, only the time is known.
        words = text(beat).split(" ", 4) if beat.count(b" ") >= 4 else ["", "0", "0", "0", "{}"]
        times_ms = (whole(until_ms), whole(words[1]), whole(words[2]))
        return cls(text(incarnation), *times_ms, words[4], incarnation == leader)


@immutable
class ListedWorkers:
    """One page, those that lived longest last."""

    srv_us: int
    workers: tuple[ListedWorker, ...]


class LockOperation(Operation):
    """The base of the calls about locks."""

    __slots__ = ()

    def parse(self, raw: Any, decode: object) -> LockReply:
        """The raw reply as a value."""
        return LockReply(server_us(raw), one_of(raw[1], _LOCK_RESULTS), int(raw[2]), int(raw[3]))


LockResult = Literal["held", "released", "taken", "lost", "refused"]
_LOCK_RESULTS = get_args(LockResult)


@immutable
class AcquireLock(DeadlineBound, LockOperation, script="lock_acquire", slots={"op": "token"}):
    """Take a lock that nobody holds, for `ttl_ms`. The token is the identity."""

    name: str
    token: str
    ttl_ms: int


@immutable
class ExtendLock(DeadlineBound, LockOperation, script="lock_extend"):
    """Hold a lock for `ttl_ms` from now. (token, counter) is the identity."""

    name: str
    token: str
    counter: int
    ttl_ms: int


@immutable
class ReleaseLock(LockOperation, script="lock_release", slots={"op": "token"}):
    """Give a lock back. The token is the identity."""

    name: str
    token: str


@immutable
class LockReply:
    """`held`: until `until_ms`, under this fence; `released`; `taken`: by somebody else until then; `lost`: it was not held any
    more; `refused`: the call came too late."""

    srv_us: int
    result: LockResult
    fence: int = 0
    until_ms: int = 0

    @property
    def refused(self) -> bool:
        """True when the call came too late and was not applied."""
        return self.result == "refused"


@immutable
class ReplicationProbe(Operation, script="replication_probe"):
    """Write one key, whatever else there is to write (rule 8)."""

    def parse(self, raw: object, decode: object) -> Literal[True]:
        """It is written."""
        return True


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

    @classmethod
    def read(cls, name: bytes, flat: Sequence[bytes]) -> tuple[RunTimes, ...]:
        """Those of one name, from the fields of its hash: `ok:total_us`, `ok:most_us`, `ok:<bucket>`, and so for `failed`."""
        fields = dict(zip(flat[::2], map(whole, flat[1::2]), strict=True))
        items: list[RunTimes] = []
        for outcome in ("ok", "failed"):
            start = f"{outcome}:".encode()
            mine = {field.removeprefix(start): number for field, number in fields.items() if field.startswith(start)}
            total_us, most_us = (max(0, mine.pop(field, 0)) for field in (b"total_us", b"most_us"))
            counted = [(int(bucket), runs) for bucket, runs in mine.items() if bucket.isdigit() and len(bucket) < 3 and runs > 0]
            items.append(
                cls(
                    text(name),
                    cast("Any", outcome),
                    total_us,
                    most_us,
                    tuple(sorted(counted)),
                )
            )
        return tuple(items)


@immutable
class ReportRunTimes(Operation, script="report_run_times", patient=False):
    """What a worker has measured since its last report. (incarnation, counter) is the identity; void after `not_after_ms`."""

    incarnation: str
    counter: int
    not_after_ms: int
    items: tuple[RunTimes, ...]

    def parse(self, raw: Any, decode: object) -> RunTimesReported:
        """The raw reply as a value."""
        return RunTimesReported(server_us(raw), one_of(raw[1], _REPORT_RESULTS))


ReportResult = Literal["ok", "repeated", "refused"]
_REPORT_RESULTS = get_args(ReportResult)


@immutable
class RunTimesReported:
    """`ok`, or `repeated` for another copy of a report that was added; `refused`: it came too late and was not."""

    srv_us: int
    result: ReportResult


@immutable
class ListRunTimes(Operation, script="list_run_times"):
    """One page of the names with times."""

    offset: int
    limit: int

    def parse(self, raw: Any, decode: object) -> ListedRunTimes:
        """The raw reply as a value."""
        names = tuple((text(name), whole(since_ms), RunTimes.read(name, flat)) for name, since_ms, flat in raw[1])
        return ListedRunTimes(server_us(raw), names)


@immutable
class ListedRunTimes:
    """For each name: the name, the time of its first report (ms), and its outcomes, one item for each."""

    srv_us: int
    names: tuple[tuple[str, int, tuple[RunTimes, ...]], ...]


# -- The control connections of workers, by which others see that they live: a process that was killed has
# lost its own at once.


class ClientConnection(NamedTuple):
    """A connection as its server lists it: client id and address of the client; and the run id of the server, which never gives
    the same id twice."""

    client_id: int
    address: str
    run_id: str


class Connected(NamedTuple):
    """The control connection of a worker."""

    incarnation: str
    client_id: int


@immutable
class ListConnections(Operation, label="look at connections", patient=False):
    """Which of these clients are connected: asks the server that has the queue's keys, and changes nothing."""

    client_ids: tuple[int, ...]

    def parse(self, raw: Any, decode: object) -> ListedConnections:
        """The raw reply as a value: one line for each client."""
        return ListedConnections(dict(map(read_client, raw.decode(errors="replace").splitlines())))


@immutable
class ListedConnections:
    """The clients that are connected, each with its address."""

    addresses: dict[int, str]


def read_client(line: str) -> tuple[int, str]:
    """Client id and address of a line of CLIENT LIST or CLIENT INFO."""
    fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return int(fields["id"]), fields["addr"]


# -- Messages that scripts publish to workers, which read them on a connection of their own (rule 26):
# text, the first word of which is the kind.
#
# A message may be lost, so each of them only says early what a worker would learn from one of its calls.


@immutable
class JobCancelled:
    """The job of this lease was cancelled: `cancelled <fence> <nonce> <job>`."""

    lease: Lease


@immutable
class NewsPublished:
    """There are news for workers (classes with targets, pauses, settings), of this version: `news <version>`."""

    version: int


ControlMessage = JobCancelled | NewsPublished


def read_control(message: bytes) -> ControlMessage | None:
    """A message parsed; None for a kind that this version of the engine does not know."""
    match message.decode(errors="replace").split(" ", 3):
        case ["cancelled", fence, nonce, job] if fence.isdecimal():
            return JobCancelled(Lease(job, int(fence), nonce))
        case ["news", version] if version.isdecimal():
            return NewsPublished(int(version))
        case _:
            return None
