"""Pauses and limits, as they are and to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.calendar import calendar
from engine.http.page.looks import SomeWorkers
from engine.http.page.rendering import UNKNOWN, length
from engine.ops.looks import LimitInfo, PauseInfo
from engine.ops.workers import WorkerInfo
from engine.queue.scheduling import Schedule
from engine.queue.why import Obstacles


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit: how full it is, from 0 to 100, and who fills it."""

    limit: LimitInfo
    fill: int
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LimitList:
    """Pauses and limits of a queue; `known` is False on an old keyspace, where they cannot be told."""

    known: bool
    pauses: tuple[PauseInfo, ...]
    limits: tuple[LimitRow, ...]
    paused: bool
    now_ms: int


def limit_list(obstacles: Obstacles | None) -> LimitList:
    """The pauses and limits of a queue."""
    if obstacles is None:
        return LimitList(False, (), (), False, 0)
    paused = any(pause.name is None for pause in obstacles.pauses)
    return LimitList(
        True, obstacles.pauses, tuple(map(limit_row, obstacles.limits)), paused, obstacles.srv_us // 1000
    )


def limit_row(limit: LimitInfo) -> LimitRow:
    """A limit as its row."""
    shares = [
        used / most for used, most in ((limit.in_hand, limit.concurrency), (limit.used, limit.rate)) if most
    ]
    workers = dict.fromkeys(worker for _, worker in limit.holders if worker)
    return LimitRow(limit, min(100, round(100 * max(shares, default=0.0))), tuple(workers))


# -- Schedules with their next ticks.

#: Schedules of a page, and ticks that a row shows.
ROWS_MAX = 50
_TICKS = 3


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule: when it ticks, in words, and its next ticks (ms). `idle`: why it does not tick, '' where it
    does."""

    schedule: Schedule
    timing: str
    ticks: tuple[int, ...]
    idle: str


@dataclass(frozen=True, slots=True)
class ScheduleList:
    """Schedules from rank `offset` on; `next` is where the following ones begin."""

    rows: tuple[ScheduleRow, ...]
    offset: int
    next: int | None
    now_ms: int


def schedule_list(found: Sequence[Schedule], offset: int, now_ms: int) -> ScheduleList:
    """One page of schedules; `found` has one more where another page follows."""
    rows = tuple(map(schedule_row, found[:ROWS_MAX]))
    return ScheduleList(rows, offset, offset + ROWS_MAX if len(found) > ROWS_MAX else None, now_ms)


def schedule_row(schedule: Schedule) -> ScheduleRow:
    """A schedule as its row."""
    idle = schedule.error or ("" if schedule.enabled else "disabled")
    ticks = [schedule.next_ms] if schedule.next_ms and not idle else []
    try:
        while ticks and len(ticks) < _TICKS:
            ticks.append(calendar(schedule.timing).after(ticks[-1], schedule.anchor_ms))
    except ValueError as error:
        idle = str(error)
    return ScheduleRow(schedule, timing_words(schedule), tuple(ticks), idle)


def timing_words(schedule: Schedule) -> str:
    """When it ticks: `0 9 * * 1 (Europe/Berlin)`, `every 5 min`, `every 3 months`."""
    timing = schedule.timing
    zone = "" if timing.zone == "UTC" else f" ({timing.zone})"
    if timing.cron:
        return timing.cron + zone
    if timing.every_ms:
        return f"every {length(timing.every_ms)}"
    return (
        f"every {timing.months} month{'' if timing.months == 1 else 's'}{zone}" if timing.months else UNKNOWN
    )


# -- Workers with what each has in hand.

#: Jobs in hand and names of handlers that a row shows.
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker: whether it lives or why it claims nothing, some of its jobs, and how many more it has."""

    worker: WorkerInfo
    state: str
    jobs: tuple[str, ...]
    more_jobs: int
    handlers: tuple[str, ...]
    more_handlers: int


@dataclass(frozen=True, slots=True)
class WorkerList:
    """Workers from rank `offset` on, with the sums of those that live; `next` is where the following ones
    begin."""

    rows: tuple[WorkerRow, ...]
    alive: int
    in_hand: int
    places: int
    offset: int
    next: int | None
    now_ms: int


def worker_list(found: SomeWorkers, offset: int) -> WorkerList:
    """One page of workers: those that live first, by name."""
    rows = sorted(
        map(worker_row, found.workers),
        key=lambda row: (not row.worker.alive, row.worker.name, row.worker.incarnation),
    )
    alive = [info for info in found.workers if info.alive]
    sums = (len(alive), sum(info.in_hand for info in alive), sum(info.concurrency for info in alive))
    return WorkerList(
        tuple(rows), *sums, offset, offset + len(found.workers) if found.more else None, found.now_ms
    )


def worker_row(info: WorkerInfo) -> WorkerRow:
    """A worker as its row."""
    handlers = info.handlers
    return WorkerRow(
        info,
        state_of(info),
        info.jobs[:_SHOWN],
        max(0, info.in_hand - min(_SHOWN, len(info.jobs))),
        handlers[:_SHOWN],
        max(0, len(handlers) - _SHOWN),
    )


def state_of(info: WorkerInfo) -> str:
    """Whether it works, in one word or two."""
    if not info.alive:
        return "lost"
    if info.unreadable:
        return "unreadable"
    if info.paused:
        return "paused"
    if info.gate_closed:
        return "gate closed"
    return "busy" if info.concurrency and info.in_hand >= info.concurrency else "alive"
