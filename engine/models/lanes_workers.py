"""The part of Lanes about workers and locks: the replies of their scripts, parsed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from engine.operations import (
    AcquireLock,
    Beat,
    Beaten,
    ExtendLock,
    ListedRunTimes,
    ListedWorker,
    ListedWorkers,
    ListRunTimes,
    ListWorkers,
    LockReply,
    ReleaseLock,
    ReplicationProbe,
    ReportRunTimes,
    RunTimes,
    RunTimesReported,
    WorkersOperation,
    WorkersReply,
)

_BEATEN = (b"ok", b"repeated", b"left")
_TOLD = (b"ok", b"repeated", b"refused")
_LOCKED = (b"held", b"released", b"taken", b"lost", b"refused")


def parse(operation: WorkersOperation, srv_us: int, raw: Any) -> WorkersReply | bool:
    """The reply of an operation's script as a value. Raises what `lanes_replies.parse` makes a ScriptFault of."""
    match operation:
        case Beat():
            return Beaten(srv_us, cast("Any", _word(raw[1], _BEATEN)), raw[2] == 1, raw[3] == 1)
        case ListWorkers():
            leader, flat = raw[1], raw[2]
            found = [_listed(flat[at : at + 3], leader) for at in range(0, len(flat), 3)]
            return ListedWorkers(srv_us, tuple(found))
        case ReportRunTimes():
            return RunTimesReported(srv_us, cast("Any", _word(raw[1], _TOLD)))
        case ListRunTimes():
            return ListedRunTimes(
                srv_us, tuple((name.decode(), int(since_ms), _took(name, flat)) for name, since_ms, flat in raw[1])
            )
        case AcquireLock() | ExtendLock() | ReleaseLock():
            return LockReply(srv_us, cast("Any", _word(raw[1], _LOCKED)), int(raw[2]), int(raw[3]))
        case ReplicationProbe():
            return True


def _listed(raw: Sequence[bytes], leader: bytes) -> ListedWorker:
    incarnation, until_ms, beat = raw
    # Of a former incarnation, and of a beat that has run out, only the time is known.
    words = beat.decode().split(" ", 3) if beat.count(b" ") >= 3 else ["", "0", "0", "{}"]
    return ListedWorker(incarnation.decode(), int(float(until_ms)), int(words[1]), int(words[2]), words[3], incarnation == leader)


def _took(name: bytes, flat: Sequence[bytes]) -> tuple[RunTimes, ...]:
    fields = dict(zip(flat[::2], map(int, flat[1::2]), strict=True))
    items: list[RunTimes] = []
    for outcome in ("ok", "failed"):
        start = f"{outcome}:".encode()
        mine = {field.removeprefix(start): number for field, number in fields.items() if field.startswith(start)}
        total_us, most_us = mine.pop(b"total_us", 0), mine.pop(b"most_us", 0)
        buckets = sorted((int(bucket), runs) for bucket, runs in mine.items())
        items.append(RunTimes(name.decode(), cast("Any", outcome), total_us, most_us, tuple(buckets)))
    return tuple(items)


def _word(raw: bytes, allowed: tuple[bytes, ...]) -> str:
    if raw not in allowed:
        raise ValueError(f"{raw!r} is none of {allowed}")
    return raw.decode()
