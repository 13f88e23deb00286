"""Schedules with their next ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.calendar import calendar
from engine.http.page.words import UNKNOWN, length
from engine.queue.scheduling import Schedule

#: Schedules of a page, and ticks that a row shows.
ROWS_MAX = 50
_TICKS = 3


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule: when it ticks, in words, and its next ticks (ms). `idle`: why it does not tick, '' where it does."""

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
    return f"every {timing.months} month{'' if timing.months == 1 else 's'}{zone}" if timing.months else UNKNOWN
