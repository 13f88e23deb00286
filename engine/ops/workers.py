"""Workers and what processes share beside jobs: beats, the listing of workers, how long handlers took, locks,
and the write that a replica is waited for with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple, cast, get_args

from engine.errors import Malformed
from engine.ops.base import DeadlineBound, Operation, frozen, immutable, one_of, server_us, text, whole
from engine.ops.jobs import Lease


@immutable
class Beat(Operation, script="beat", patient=False):
    """A worker lives: until `until_ms` its leases are no orphans. 0: it has ended. (incarnation,
    counter) is the identity. `sweep_ms` is its sweep interval, by which it would find the leader silent.
    `about` is JSON for people; `others`: further incarnations whose leases it still has. `connection`: client
    id and run id of its control connection, '' where there is none by which others may see that it lives."""

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
    """`leads`: this worker sweeps. `orphaned`: workers stopped beating and may have left leases.
    `watch_in_ms`: time until this follower's watch slot (0: at the next heartbeat). `version` of the control
    messages. `looks`: nobody checks the control connections of workers, so this follower has to (rule 39)."""

    srv_us: int
    result: BeatResult
    leads: bool
    orphaned: bool
    watch_in_ms: int = 0
    version: int = 0
    looks: bool = False


@immutable
class ListWorkers(Operation, script="workers", goes="each"):
    """One page of the workers."""

    offset: int
    limit: int

    def parse(self, raw: Any, decode: object) -> ListedWorkers:
        """The raw reply as a value: the leader, then three values for each worker."""
        srv_us, rows = server_us(raw), list(zip(*[iter(raw[2])] * 3, strict=True))
        # What has no life is a former incarnation of a worker that is listed anyway, or was forgotten.
        known = [
            WorkerInfo.read(values, raw[1], srv_us // 1000) for values in rows if _heartbeat(values[2])[0]
        ]
        return ListedWorkers(srv_us, tuple(known), len(rows))


#: Workers of one answer.
WORKERS_MAX = 1_000
#: Names of jobs that a worker tells in its beats.
HANDLERS_TOLD = 100


@frozen
class WorkerInfo:
    """A worker as its last beat told it. `beat_age_ms` is by the server's clock; `in_hand` counts its leases,
    of which `jobs` are at most 100 ids; `leads`: it sweeps for all of them. `handlers` are at most 100 names.
    `priorities` the least and the greatest that it claims, None: all. `routing` what targets and routes of
    jobs ask for. `paused` and `gate_closed`: whether a pause or its gate kept it from claiming when it beat.
    On an old keyspace those that the registry of the format lists come behind the others, with their names as
    incarnations and 0 for what is not known. `unreadable` says why a beat that somebody else has written
    cannot be read."""

    name: str
    incarnation: str
    host: str
    pid: int
    version: str
    alive: bool
    beat_age_ms: int
    started_ms: int
    in_hand: int
    jobs: tuple[str, ...]
    leads: bool
    concurrency: int
    lease_ms: int
    handlers: tuple[str, ...]
    attributes: Mapping[str, Any]
    priorities: tuple[int, int] | None = None
    routing: Mapping[str, Any] = field(default_factory=dict[str, Any])
    paused: bool = False
    gate_closed: bool = False
    unreadable: str = ""

    @classmethod
    def read(cls, values: Sequence[bytes], leader: bytes, now_ms: int) -> WorkerInfo:
        """From the values of a reply: incarnation, the time until which it is taken for alive, and the last
        heartbeat; of one that cannot be read, that it is there."""
        incarnation, until_ms = text(values[0]), whole(values[1])
        ttl_ms, lease_ms, about_text = _heartbeat(values[2])
        leads, alive, age_ms = values[0] == leader, until_ms > now_ms, max(0, now_ms - (until_ms - ttl_ms))
        try:
            about = cast("dict[str, Any]", json.loads(about_text))
            priorities: Any = about.get("priorities")
            return cls(
                name=str(about.get("name", "")),
                incarnation=incarnation,
                host=str(about.get("host", "")),
                pid=_number(about, "pid"),
                version=str(about.get("version", "")),
                alive=alive,
                beat_age_ms=age_ms,
                started_ms=_number(about, "started_ms"),
                in_hand=_number(about, "in_hand"),
                jobs=tuple(map(str, about.get("jobs", ()))),
                leads=leads,
                concurrency=_number(about, "concurrency"),
                lease_ms=lease_ms,
                handlers=tuple(map(str, about.get("handlers", ()))),
                attributes=dict(about.get("attributes", {})),
                priorities=(int(priorities[0]), int(priorities[1])) if priorities else None,
                routing=dict(about.get("routing", {})),
                paused=bool(about.get("paused", False)),
                gate_closed=bool(about.get("gate_closed", False)),
            )
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
            unreadable = f"its beat cannot be read: {error}"
            return cls(
                "",
                incarnation,
                "",
                0,
                "",
                alive,
                age_ms,
                0,
                0,
                (),
                leads,
                0,
                0,
                (),
                {},
                unreadable=unreadable,
            )


def _heartbeat(beat: bytes) -> tuple[int, int, str]:
    """Its life, the length of its leases, and its JSON. Of a former incarnation, and of a heartbeat that has
    run out, there is none: its life is 0."""
    words = text(beat).split(" ", 4) if beat.count(b" ") >= 4 else ["", "0", "0", "0", "{}"]
    return whole(words[1]), whole(words[2]), words[4]


def _number(about: Mapping[str, Any], name: str) -> int:
    """A number of a beat, which pages reckon with. Raises ValueError, TypeError, OverflowError."""
    number = int(about.get(name, 0))
    if not 0 <= number < 2**53:
        raise ValueError(f"{name} is no number of a worker")
    return number


@immutable
class ListedWorkers:
    """One page, those that lived longest last, of `seen` entries."""

    srv_us: int
    workers: tuple[WorkerInfo, ...]
    seen: int


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
    """`held`: until `until_ms`, under this fence; `released`; `taken`: by somebody else until then. `lost`:
    it was not held any more. `refused`: the call came too late."""

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


#: Of the buckets that runs are counted in by their length, the last: all runs beyond 2^47 ns (39 hours) are
#: there.
BUCKET_MAX = 95


def bucket_end_ns(bucket: int) -> float:
    """Where a bucket of lengths ends. Bucket b > 0 begins where b - 1 ends; two of them double."""
    return 2 ** (bucket / 2)


class RunTimes(NamedTuple):
    """How long runs of one name and outcome took: all together, the longest of them, and how many by bucket
    (see `Durations`)."""

    name: str
    outcome: Literal["ok", "failed"]
    total_us: int
    most_us: int
    buckets: tuple[tuple[int, int], ...]


@immutable
class ReportRunTimes(Operation, script="report_run_times", patient=False):
    """What a worker has measured since its last report. (incarnation, counter) is the identity; void after
    `not_after_ms`."""

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
    """`ok`, or `repeated` for another copy of a report that was added; `refused`: it came too late and was
    not."""

    srv_us: int
    result: ReportResult


@immutable
class ListRunTimes(Operation, script="list_run_times", goes="each"):
    """One page of the names with times."""

    offset: int
    limit: int

    def parse(self, raw: Any, decode: object) -> ListedRunTimes:
        """The raw reply as a value."""
        return ListedRunTimes(server_us(raw), tuple(HandlerTimes.read(*values) for values in raw[1]))


@immutable
class ListedRunTimes:
    """The times of each name of the page."""

    srv_us: int
    names: tuple[HandlerTimes, ...]


# -- How long handlers took, as `queue.stats()` tells it: by name and outcome, with a histogram that
# percentiles are estimated from (MQ36).

_MS = 1_000_000


@frozen
class Durations:
    """How long runs took. `buckets` has an entry for each bucket that is not empty, in order: its number and
    how many runs. Bucket b holds those of 2^((b-1)/2) ns up to 2^(b/2) ns, and the last one (95) all of 39
    hours and more."""

    count: int
    total_us: int
    most_us: int
    buckets: tuple[tuple[int, int], ...]

    @property
    def mean_ms(self) -> float:
        """The average; 0 without a run."""
        return self.total_us / self.count / 1000 if self.count else 0.0

    @property
    def most_ms(self) -> float:
        """The longest run."""
        return self.most_us / 1000

    def percentile_ms(self, percent: float) -> float:
        """So many percent of the runs (0 to 100) took at most so long: estimated inside its bucket, within a
        fifth of the true value, and never more than the longest run; 0 without a run. Raises Malformed."""
        if not 0 <= percent <= 100:
            raise Malformed("percent", percent, "a number from 0 to 100")
        wanted = percent / 100 * self.count
        before = 0
        for bucket, runs in self.buckets:
            if before + runs >= wanted:
                start_ns = bucket_end_ns(bucket - 1) if bucket else 0.0
                end_ns = bucket_end_ns(bucket) if bucket < BUCKET_MAX else self.most_us * 1000.0
                return min((start_ns + (end_ns - start_ns) * (wanted - before) / runs) / _MS, self.most_ms)
            before += runs
        return 0.0


@frozen
class HandlerTimes:
    """How long the handlers of one name took since `since_ms` (server time of the first report): runs that
    returned, and runs that raised or were given up. Runs, not jobs: a job that ran three times counts thrice,
    and each job of a batch counts with the time of the whole batch. The name `*` stands for all names beyond
    the first 1,000."""

    name: str
    since_ms: int
    succeeded: Durations
    failed: Durations

    @classmethod
    def read(cls, name: bytes, since_ms: bytes, flat: Sequence[bytes]) -> HandlerTimes:
        """From the values of a reply: the name, the time of the first report, and the fields of its hash:
        `ok:total_us`, `ok:most_us`, `ok:<bucket>`, and so for `failed`."""
        fields = dict(zip(flat[::2], map(whole, flat[1::2]), strict=True))
        ends: list[Durations] = []
        for start in (b"ok:", b"failed:"):
            mine = {
                field.removeprefix(start): number
                for field, number in fields.items()
                if field.startswith(start)
            }
            total_us, most_us = (max(0, mine.pop(field, 0)) for field in (b"total_us", b"most_us"))
            counted = [
                (int(bucket), runs)
                for bucket, runs in mine.items()
                if bucket.isdigit() and len(bucket) < 3 and runs > 0
            ]
            ends.append(
                Durations(sum(runs for _, runs in counted), total_us, most_us, tuple(sorted(counted)))
            )
        return cls(text(name), whole(since_ms), *ends)


# -- The control connections of workers, by which others see that they live: a process that was killed has
# lost its own at once.


class ClientConnection(NamedTuple):
    """A connection as its server lists it: client id and address of the client; and the run id of the server,
    which never gives the same id twice. `direct`: what the server lists is the socket of this process, and
    not that of a proxy, which need not end with it."""

    client_id: int
    address: str
    run_id: str
    direct: bool = True


class Connected(NamedTuple):
    """The control connection of a worker."""

    incarnation: str
    client_id: int


@immutable
class ListConnections(Operation, label="look at connections", patient=False):
    """Which of these clients are connected: asks the server that has the queue's keys, and changes
    nothing."""

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
class UpdatesPublished:
    """There are updates for workers (classes with targets, pauses, settings), of this version: `news
    <version>`."""

    version: int


ControlMessage = JobCancelled | UpdatesPublished


def read_control(message: bytes) -> ControlMessage | None:
    """A message parsed; None for a kind that this version of the engine does not know."""
    match message.decode(errors="replace").split(" ", 3):
        case ["cancelled", fence, nonce, job] if fence.isdecimal():
            return JobCancelled(Lease(job, int(fence), nonce))
        case ["news", version] if version.isdecimal():
            return UpdatesPublished(int(version))
        case _:
            return None
