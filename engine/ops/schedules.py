"""Schedules (rule 24): what one is, its ticks, and the calls that change and list them, each with its
reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

from engine.ops.admin import ADMINISTERED_RESULTS, Administered, AdminOperation
from engine.ops.base import Operation, immutable, one_of, server_us, whole
from engine.ops.jobs import Enqueue

#: What becomes of ticks that nobody saw in time: none runs, the last one runs for all, or all of them run.
Missed = Literal["skip", "once", "all"]
#: Whether a schedule makes a job while the one that it made before has not ended.
Overlap = Literal["allow", "skip"]


@immutable
class Timing:
    """When a schedule ticks: by a cron expression in an IANA zone, every `every_ms`, or every so many
    `months`; not before `start_ms`, from which intervals count (0 = from when it was put)."""

    cron: str = ""
    zone: str = "UTC"
    every_ms: int = 0
    months: int = 0
    start_ms: int = 0


@immutable
class TickPolicy:
    """What a schedule does about ticks that were seen more than `late_ms` after their time, and about a job
    of its own that has not ended."""

    missed: Missed = "once"
    late_ms: int = 60_000
    overlap: Overlap = "allow"


@immutable
class ScheduleChange(AdminOperation, goes="home"):
    """The base of the calls that change a schedule."""

    def parse(self, raw: Any, decode: object) -> ScheduleChanged:
        """The raw reply as a value."""
        result, found = one_of(raw[1], ADMINISTERED_RESULTS), raw[2].decode()
        if found not in _FOUND and result != "refused":
            raise ValueError(f"{result} {found}")
        return ScheduleChanged(server_us(raw), result, found)


@immutable
class PutSchedule(ScheduleChange, script="put_schedule", slots={"name": "schedule"}):
    """Define a schedule. One that is there with the same definition stays as it is; with the same timing it
    keeps its next tick and its anchor. `job` is what each tick enqueues, its id and nonce aside; `enabled`
    None: as it is, a new one is."""

    schedule: str
    timing: Timing
    policy: TickPolicy
    job: Enqueue
    next_ms: int
    anchor_ms: int
    enabled: bool | None


@immutable
class EnableSchedule(ScheduleChange, script="enable_schedule", slots={"name": "schedule"}):
    """Let a schedule tick from `next_ms` on (0: not any more), if this version of it is there."""

    schedule: str
    version: int
    next_ms: int


@immutable
class RemoveSchedule(ScheduleChange, script="remove_schedule", slots={"name": "schedule"}):
    """Forget a schedule; jobs that it has made stay."""

    schedule: str


@immutable
class ScheduleChanged(Administered):
    """`found` is what the call met: `new`, `changed`, `same`, `gone` (no such schedule), `other` (another
    version), `full` (no room for another one). A `repeated` call tells what its first copy met."""

    found: str = ""


_FOUND = ("new", "changed", "same", "full", "gone", "other")


class DueSchedule(NamedTuple):
    """A schedule whose next tick, `expected_ms`, has come: its version and how it ticks, as they are
    stored."""

    schedule: str
    version: str
    expected_ms: int
    anchor_ms: int
    timing: str
    policy: str


@immutable
class Tick(Operation, script="tick", slots={"name": "schedule", "error_text": "error"}):
    """Make the jobs of a schedule's due ticks and move it on to `next_ms`, if it still waits for
    `expected_ms` in this version: these two make that no tick fires twice (rule 24). `missed` ticks are
    passed by. With an `error` it can never tick and is disabled. (incarnation, counter) tells another copy
    from another scheduler."""

    incarnation: str
    counter: int
    schedule: str
    version: str
    expected_ms: int
    ticks_ms: tuple[int, ...]
    next_ms: int
    missed: int
    overlap: Overlap
    error: str = ""

    @property
    def caller(self) -> str:
        """The identity, as the script keeps it."""
        return f"{self.incarnation}:{self.counter}"

    def parse(self, raw: Any, decode: object) -> Ticked:
        """The raw reply as a value."""
        return Ticked(
            server_us(raw), one_of(raw[1], _TICK_RESULTS), tuple(job.decode() for job in raw[3]), int(raw[2])
        )


TickResult = Literal["ticked", "repeated", "moved"]
_TICK_RESULTS = get_args(TickResult)


@immutable
class Ticked:
    """`ticked`, or `repeated` for another copy of the same call, with the jobs that were made and how many
    were not because the job before had not ended. `moved`: the schedule has another version or waits for
    another tick."""

    srv_us: int
    result: TickResult
    jobs: tuple[str, ...] = ()
    skipped: int = 0


@immutable
class ListSchedules(Operation, script="schedules", slots={"name": "schedule"}):
    """One page of the schedules, by next tick, or the one of this name."""

    schedule: str = ""
    offset: int = 0
    limit: int = 100

    def parse(self, raw: Any, decode: object) -> SchedulePage:
        """The raw reply as a value."""
        flat = raw[2]
        if len(flat) % _FIELDS:
            raise ValueError(f"{len(flat)} words for schedules of {_FIELDS} each")
        items = tuple(StoredSchedule.read(flat[at : at + _FIELDS]) for at in range(0, len(flat), _FIELDS))
        return SchedulePage(server_us(raw), items, raw[1] == 1)


#: Values of one schedule in the reply.
_FIELDS = 14


@immutable
class StoredSchedule:
    """A schedule as it is stored: its definition, and its state. Times are server ms, 0 where there is none;
    `last_ms` is the last tick that made a job, `job` a sealed envelope."""

    schedule: str
    version: int
    timing: str
    policy: str
    job: bytes
    enabled: bool
    anchor_ms: int
    next_ms: int
    last_ms: int
    last_job: str
    count: int
    missed: int
    skipped: int
    error: str

    @classmethod
    def read(cls, words: Sequence[bytes]) -> StoredSchedule:
        """From the values of a reply, in its order."""
        texts = [word.decode(errors="replace") for word in words]
        (
            name,
            version,
            timing,
            policy,
            _,
            enabled,
            anchor_ms,
            next_ms,
            last_ms,
            last_job,
            count,
            missed,
            skipped,
            error,
        ) = texts
        times_ms = (number(anchor_ms), number(next_ms), number(last_ms))
        counts = (number(count), number(missed), number(skipped))
        return cls(
            name,
            number(version),
            timing,
            policy,
            words[4],
            enabled == "1",
            *times_ms,
            last_job,
            *counts,
            error,
        )


def number(word: str) -> int:
    """A number of a schedule's state; 0 where there is none, or something else: one bad schedule must not
    hide the others."""
    return max(0, whole(word))


@immutable
class SchedulePage:
    """A page of schedules; `more`: others follow."""

    srv_us: int
    items: tuple[StoredSchedule, ...]
    more: bool


# -- Schedules as the scripts store them (rule 24).

T = TypeVar("T", Timing, TickPolicy)

#: Most schedules of one queue.
SCHEDULES_MAX = 10_000


def written(value: Timing | TickPolicy) -> str:
    """The fields that differ from their defaults, as JSON."""
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    kept = {field.name: given[field.name] for field in fields(value) if given[field.name] != field.default}
    return json.dumps(kept, separators=(",", ":"), sort_keys=True)


def from_stored(kind: type[T], text: str) -> T:
    """Parse the JSON that `written` returned. Raises ValueError for any other text."""
    try:
        given: Any = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"no {kind.__name__}: {text:.100} ({error})") from error
    known = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    if not isinstance(given, dict):
        raise ValueError(f"no {kind.__name__}: {text:.100}")
    values = cast("dict[str, Any]", given)
    for name, value in values.items():
        if name not in known or type(value) is not type(known[name]):
            raise ValueError(f"no {kind.__name__}: {name}={value!r:.100}")
    return kind(**values)
