"""Schedules in Lanes: what their operations say to the scripts, and how a schedule is written down (rule 24)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeVar, cast

from engine.models import envelope
from engine.operations import (
    Enqueue,
    ScheduleChanged,
    SchedulePage,
    StoredSchedule,
    Ticked,
    TickPolicy,
    Timing,
)

T = TypeVar("T", Timing, TickPolicy)

#: Schedules of one queue.
SCHEDULES_MAX = 10_000
_FOUND = ("new", "changed", "same", "full", "gone", "other")
_TICKED = ("ticked", "repeated", "moved")
_WORDS = 14


def job_id(schedule: str, tick_ms: int) -> str:
    """The id of the job of one tick: one tick is one job."""
    return f"cron:{schedule}:{tick_ms}"


def sealed(job: Enqueue) -> bytes:
    """The envelope of a schedule's jobs: a tick fills in sequence and times, as an enqueue does."""
    head, tail = envelope.encode(job)
    return head + bytes(12) + tail


def written(value: Timing | TickPolicy) -> str:
    """What is not as by default, as JSON."""
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    kept = {field.name: given[field.name] for field in fields(value) if given[field.name] != field.default}
    return json.dumps(kept, separators=(",", ":"), sort_keys=True)


def read(kind: type[T], text: str) -> T:
    """What `written` has written. Raises ValueError for anything else."""
    given: Any = json.loads(text)
    known = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    if not isinstance(given, dict):
        raise ValueError(f"no {kind.__name__}: {text:.100}")
    values = cast("dict[str, Any]", given)
    for name, value in values.items():
        if name not in known or type(value) is not type(known[name]):
            raise ValueError(f"no {kind.__name__}: {name}={value!r:.100}")
    return kind(**values)


def changed(srv_us: int, raw: Any) -> ScheduleChanged:
    """The reply to a change."""
    result, found = raw[1].decode(), raw[2].decode()
    if result not in ("done", "repeated", "refused") or (found not in _FOUND and result != "refused"):
        raise ValueError(f"{result} {found}")
    return ScheduleChanged(srv_us, cast("Any", result), found)


def ticked(srv_us: int, raw: Any) -> Ticked:
    """The reply to a tick."""
    result = raw[1].decode()
    if result not in _TICKED:
        raise ValueError(result)
    return Ticked(srv_us, cast("Any", result), tuple(job.decode() for job in raw[3]), int(raw[2]))


def listed(srv_us: int, raw: Any) -> SchedulePage:
    """A page of schedules."""
    flat = raw[2]
    if len(flat) % _WORDS:
        raise ValueError(f"{len(flat)} words for schedules of {_WORDS} each")
    return SchedulePage(srv_us, tuple(_stored(flat[at : at + _WORDS]) for at in range(0, len(flat), _WORDS)), raw[1] == 1)


def _stored(words: Sequence[bytes]) -> StoredSchedule:
    job = words[4]
    name, version, timing, policy, _, enabled, anchor_ms, next_ms, last_ms, last_job, *rest = (
        word.decode(errors="replace") for word in words
    )
    return StoredSchedule(
        schedule=name,
        version=number(version),
        timing=timing,
        policy=policy,
        job=job,
        enabled=enabled == "1",
        anchor_ms=number(anchor_ms),
        next_ms=number(next_ms),
        last_ms=number(last_ms),
        last_job=last_job,
        count=number(rest[0]),
        missed=number(rest[1]),
        skipped=number(rest[2]),
        error=rest[3],
    )


def number(word: str) -> int:
    """A number of a schedule's state; 0 where there is none, or something else: one bad schedule must not hide the others."""
    return int(word) if word.isdecimal() else 0
