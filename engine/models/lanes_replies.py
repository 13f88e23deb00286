"""Replies of the Lanes scripts, parsed. Each reply begins with the server's time; one outside the contract is a ScriptFault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from engine.errors import ScriptFault
from engine.models import envelope, lanes_schedules, lanes_workers
from engine.operations import (
    AcquireLock,
    Administered,
    Alter,
    Altered,
    AlteredJobs,
    AwaitEnds,
    Beat,
    Bury,
    Claim,
    Claimed,
    Clean,
    Cleaned,
    Count,
    Counts,
    Drop,
    DueSchedule,
    EnableSchedule,
    Ended,
    EndedJobs,
    EndResult,
    Enqueue,
    Enqueued,
    EnqueuedMany,
    EnqueueMany,
    Era,
    Event,
    EventPage,
    Extend,
    Extended,
    ExtendLock,
    Failure,
    Finish,
    FinishedAndClaimed,
    Forget,
    Forgotten,
    Inspect,
    Inspected,
    Lease,
    LeasedJob,
    Listing,
    ListRunTimes,
    ListSchedules,
    ListWorkers,
    Look,
    Looked,
    MakeTestQueue,
    Mark,
    Marked,
    NoteProgress,
    Operation,
    Page,
    Paged,
    Pause,
    Promote,
    Promoted,
    PutSchedule,
    ReadEvents,
    ReadWorkerUpdates,
    Reap,
    Reaped,
    Release,
    ReleaseLock,
    RemoveSchedule,
    ReplicationProbe,
    Reply,
    ReportRunTimes,
    Resume,
    Retry,
    Seen,
    SetEvents,
    SetLimit,
    SetRetention,
    SetWorker,
    Snapshot,
    Tick,
    Woken,
    WorkerUpdates,
)

_END_RESULTS = {b"ok": "ok", b"repeated": "repeated", b"stale": "stale", b"cancelled": "cancelled", b"void": "void"}
_FINISHED: tuple[EndResult, str] = ("ok", "finished")
_CLAIM_RESULTS = ("leased", "empty", "repeated", "void", "stale")
_MARK_RESULTS = ("ok", "repeated", "stale")
_ADMINISTERED_RESULTS = ("done", "repeated", "refused")
_SEEN_STATES = ("pending", "finished", "discarded", "rejected", "dead", "kept", "gone")
_ALTERED_RESULTS = ("done", "changed", "held", "corrupt")
_SWEEP_KINDS = ("reaped", "buried", "corrupt")
_ENQUEUE_RESULTS = ("created", "repeated", "duplicate", "refused", "orphan")
_ENQUEUE_LETTERS = {ord(result[0]): result for result in ("created", "repeated", "duplicate")} | {ord("x"): "refused"}
_STATES = ("waiting", "delayed", "active", "dead", "done", "blocked")
#: Digits of the sequence in front of a member of `due`.
_DUE_DIGITS = 10


#: Makes a job of what a model keeps of it: body, lease, deadline, counters.
Decode = Callable[[Any, Lease, int, tuple[int, int, int]], LeasedJob]


def parse(operation: Operation, raw: Any, decode: Decode = envelope.decode) -> Reply:
    """The reply of an operation's script as a value."""
    try:
        return _parse(operation, raw, decode)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise ScriptFault(f"{type(operation).__name__}: reply outside the contract ({error}): {raw!r:.200}") from error


def woken(raw: Any, news: str) -> Woken:
    """A BLPOP reply. `news` is the list of the news, '' where it was not waited for."""
    is_news = raw is not None and raw[0] in (news, news.encode())
    return Woken(raw is not None and not is_news, is_news)


def progress(raw: Any) -> bytes | None:
    """An HGET reply."""
    if raw is None or isinstance(raw, bytes):
        return raw
    raise ScriptFault(f"ReadProgress: reply outside the contract: {raw!r:.200}")


def heard(operation: AwaitEnds, raw: Any) -> EndedJobs:
    """An XREAD reply."""
    try:
        entries: list[Any] = raw[0][1] if raw else []
        jobs = [fields[1].decode() for _, fields in entries]
        return EndedJobs(tuple(filter(None, jobs)), entries[-1][0].decode() if entries else operation.after)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise ScriptFault(f"AwaitEnds: reply outside the contract ({error}): {raw!r:.200}") from error


def event_page(operation: ReadEvents, raw: Any) -> EventPage:
    """An XREAD reply, or with `$` an XREVRANGE reply."""
    try:
        if operation.after == "$":
            return EventPage((), raw[0][0].decode() if raw else "0-0")
        events: list[Event] = []
        for at, flat in raw[0][1] if raw else ():
            found = dict(zip(flat[::2], flat[1::2], strict=True))
            words = [found[field].decode(errors="replace") for field in (b"kind", b"job", b"name", b"detail")]
            events.append(Event(at.decode(), int(at.partition(b"-")[0]), *words))
        return EventPage(tuple(events), events[-1].id if events else operation.after)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise ScriptFault(f"ReadEvents: reply outside the contract ({error}): {raw!r:.200}") from error


def _parse(operation: Operation, raw: Any, decode: Decode) -> Reply:
    match operation:
        case Enqueue():
            result = _word(raw[1], _ENQUEUE_RESULTS)
            return Enqueued(_srv_us(raw), operation.job, cast("Any", result), raw[2].decode(), int(raw[3]), raw[4].decode())
        case EnqueueMany():
            return _enqueued_many(operation, raw)
        case Claim():
            return _claimed(_srv_us(raw), operation, raw[2:], decode)
        case Finish(claim=None) | Retry() | Bury() | Drop() | Release():
            return _ended(_srv_us(raw), raw[1], _item_count(operation))
        case Finish(claim=Claim() as claim):
            srv_us = _srv_us(raw)
            claimed = _claimed(srv_us, claim, raw[2:], decode)
            return FinishedAndClaimed(srv_us, _ended(srv_us, raw[1], len(operation.leases)), claimed)
        case Extend():
            items: list[tuple[EndResult, int]] = [
                (_end_result(raw[1][at]), int(raw[1][at + 1])) for at in range(0, len(raw[1]), 2)
            ]
            if len(items) != len(operation.leases):
                raise ValueError(f"{len(items)} items for {len(operation.leases)} leases")
            return Extended(_srv_us(raw), tuple(items))
        case Mark() | NoteProgress():
            return Marked(_srv_us(raw), cast("Any", _word(raw[1], _MARK_RESULTS)))
        case Promote():
            promoted = int(raw[2][0]) if raw[2] else 0
            buried = tuple(job.decode() for job in raw[2][1:])
            return Promoted(_srv_us(raw), promoted, int(raw[1]), buried, _due(raw[3]), int(raw[4]))
        case ReadWorkerUpdates():
            flat = [text.decode() for text in raw[4]]
            targets = tuple(zip(flat[::2], flat[1::2], strict=True))
            return WorkerUpdates(_srv_us(raw), int(raw[1]), int(raw[2]), None if raw[3] < 0 else int(raw[3]), targets)
        case Reap():
            return _reaped(raw)
        case Pause() | Resume() | SetLimit() | SetWorker() | SetRetention() | SetEvents():
            return Administered(_srv_us(raw), cast("Any", _word(raw[1], _ADMINISTERED_RESULTS)))
        case PutSchedule() | EnableSchedule() | RemoveSchedule():
            return lanes_schedules.changed(_srv_us(raw), raw)
        case Tick():
            return lanes_schedules.ticked(_srv_us(raw), raw)
        case ListSchedules():
            return lanes_schedules.listed(_srv_us(raw), raw)
        case (
            Beat()
            | ListWorkers()
            | AcquireLock()
            | ExtendLock()
            | ReleaseLock()
            | ReplicationProbe()
            | ReportRunTimes()
            | ListRunTimes()
        ):
            return lanes_workers.parse(operation, _srv_us(raw), raw)
        case Alter():
            return _altered(operation, raw)
        case Clean():
            result = cast("Any", _word(raw[1], _ADMINISTERED_RESULTS))
            numbers = [int(word) for word in raw[2:]]
            if not numbers:
                return Cleaned(_srv_us(raw), result)
            removed, kept, *era = numbers
            return Cleaned(_srv_us(raw), result, removed, kept, Era(*era))
        case Forget():
            busy = raw[1] == b"busy"
            result = cast("Any", "done" if busy else _word(raw[1], _ADMINISTERED_RESULTS))
            if len(raw) < 5:
                return Forgotten(_srv_us(raw), result, None, busy)
            return Forgotten(_srv_us(raw), result, Era(int(raw[2]), int(raw[3])), busy, int(raw[4]) == 1)
        case Inspect():
            if not 1 <= len(raw) - 1 <= len(operation.jobs):
                raise ValueError(f"{len(raw) - 1} items for {len(operation.jobs)} jobs")
            return Inspected(_srv_us(raw), tuple(map(_looked, raw[1:])))
        case Page():
            if not operation.names:
                return Paged(_srv_us(raw), int(raw[1]), tuple(word.decode() for word in raw[2]), {})
            names = {name.decode(): int(count) for name, count in zip(raw[2][::2], raw[2][1::2], strict=True)}
            return Paged(_srv_us(raw), int(raw[1]), (), names)
        case Count():
            return Counts(_srv_us(raw), *(int(number) for number in raw[1:10]))
        case Look():
            state = cast("Any", _word(raw[1], _SEEN_STATES))
            return Seen(_srv_us(raw), state, int(raw[2]), int(raw[3]), raw[4], raw[5].decode(errors="replace"))
        case Listing():
            return _snapshot(raw)
        case MakeTestQueue():
            return raw[1] == b"made"
        case _:
            raise ValueError("no parser")


def _srv_us(raw: Any) -> int:
    srv_us = raw[0]
    if not isinstance(srv_us, int):
        raise TypeError("it does not begin with the server's time")
    return srv_us


def _word(raw: bytes, allowed: tuple[str, ...]) -> str:
    word = raw.decode()
    if word not in allowed:
        raise ValueError(f"{word} is none of {allowed}")
    return word


def _end_result(raw: bytes) -> EndResult:
    return cast("EndResult", _END_RESULTS[raw])


def _item_count(operation: Finish | Retry | Bury | Drop | Release) -> int:
    return len(operation.failures) if isinstance(operation, Retry | Bury) else len(operation.leases)


def _enqueued_many(operation: EnqueueMany, raw: Any) -> EnqueuedMany:
    srv_us, letters, known = _srv_us(raw), raw[1], raw[2]
    if len(letters) != len(operation.jobs) or len(known) != 3 * letters.count(b"d"):
        raise ValueError(f"{len(letters)} letters and {len(known)} values for {len(operation.jobs)} jobs")
    if not known:
        # One result for most: each letter of another one is looked up by itself.
        results = map(_ENQUEUE_LETTERS.__getitem__, letters)
        pairs = zip(operation.jobs, results, strict=True)
        return EnqueuedMany(
            srv_us, tuple([Enqueued(srv_us, job.job, cast("Any", result), "", 0, job.job) for job, result in pairs])
        )
    items: list[Enqueued] = []
    states = iter(known)
    for job, letter in zip(operation.jobs, letters, strict=True):
        result: Any = _ENQUEUE_LETTERS[letter]
        if result == "duplicate":
            items.append(Enqueued(srv_us, job.job, result, next(states).decode(), int(next(states)), next(states).decode()))
        else:
            items.append(Enqueued(srv_us, job.job, result, "", 0, job.job))
    return EnqueuedMany(srv_us, tuple(items))


def _altered(operation: Alter, raw: Any) -> AlteredJobs:
    result: Any = _word(raw[1], _ADMINISTERED_RESULTS)
    words = [word.decode() for word in raw[2]]
    if len(words) != (0 if result == "refused" else 3 * len(operation.jobs)):
        raise ValueError(f"{len(words)} words for {len(operation.jobs)} jobs")
    items: list[Altered] = []
    for job, *told in zip(operation.jobs, words[::3], words[1::3], words[2::3], strict=result != "refused"):
        what: Any = _word(told[0].encode(), _ALTERED_RESULTS)
        items.append(Altered(job, what, told[1], None if told[2] == "-" else told[2]))
    return AlteredJobs(_srv_us(raw), result, tuple(items))


def _looked(raw: Any) -> Looked:
    state, fence, at_ms, data, flat = raw
    run = {flat[at].decode(): flat[at + 1] for at in range(0, len(flat), 2)}
    return Looked(state.decode(), int(fence), int(at_ms), data, run)


def _ended(srv_us: int, flat: Any, count: int) -> Ended:
    if isinstance(flat, int):
        # Finishes of which all are ok.
        if flat != count:
            raise ValueError(f"{flat} items for {count} leases")
        return Ended(srv_us, (_FINISHED,) * count)
    items = tuple((_end_result(flat[at]), flat[at + 1].decode()) for at in range(0, len(flat), 2))
    if len(items) != count:
        raise ValueError(f"{len(items)} items for {count} leases")
    return Ended(srv_us, cast("Any", items))


def _reaped(raw: Any) -> Reaped:
    leases: list[tuple[Lease, int]] = []
    jobs: dict[str, list[str]] = {kind: [] for kind in _SWEEP_KINDS}
    flat = raw[2]
    for at in range(0, len(flat), 5):
        kind, job, nonce = _word(flat[at], _SWEEP_KINDS), flat[at + 1].decode(), flat[at + 3].decode()
        jobs[kind].append(job)
        if nonce != "-":
            leases.append((Lease(job, int(flat[at + 2]), nonce), int(flat[at + 4])))
    return Reaped(_srv_us(raw), int(raw[1]), tuple(leases), tuple(jobs["buried"]), tuple(jobs["corrupt"]))


def _due(flat: Any) -> tuple[DueSchedule, ...]:
    words = [word.decode(errors="replace") for word in flat]
    number = lanes_schedules.number
    return tuple(
        DueSchedule(words[at], words[at + 1], number(words[at + 2]), number(words[at + 3]), words[at + 4], words[at + 5])
        for at in range(0, len(words), 6)
    )


def _claimed(srv_us: int, claim: Claim, raw: Any, decode: Decode) -> Claimed:
    nonce = f"{claim.incarnation}:{claim.counter}"
    flat = raw[3]
    jobs: list[LeasedJob] = []
    unreadable: list[Failure] = []
    if len(flat) % 7:
        raise ValueError(f"{len(flat)} values for jobs of 7 each")
    values = iter(flat)
    for job, fence, deadline_ms, claims, failures, crashes, sealed in zip(*[values] * 7, strict=True):
        lease = Lease(job.decode(), fence, nonce)
        try:
            jobs.append(decode(sealed, lease, deadline_ms, (claims, failures, crashes)))
        except ScriptFault as fault:
            # One bad job must not hold up the batch that it came with.
            unreadable.append(Failure(lease, str(fault)))
    result = _word(raw[0], _CLAIM_RESULTS)
    corrupt = tuple(name.decode() for name in raw[2])
    return Claimed(srv_us, cast("Any", result), int(raw[1]), tuple(jobs), corrupt, tuple(unreadable))


def _snapshot(raw: Any) -> Snapshot:
    states: dict[str, list[tuple[str, int]]] = {}
    for state, flat in zip(_STATES, raw[1:7], strict=True):
        skip = _DUE_DIGITS if state == "delayed" else 0
        pairs = [(flat[at].decode()[skip:], int(float(flat[at + 1]))) for at in range(0, len(flat), 2)]
        states[state] = [(job, 0) for job, _ in pairs] if state == "waiting" else pairs
    return Snapshot(_srv_us(raw), states)
