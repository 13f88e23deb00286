"""Falls of clocks: where the clock that the harness read from the server, once a second, went back. Independent of the
answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.channels.circle import CLOCK_MAX, past_wrap
from reports.page.timeline import Axis
from reports.samples import samples

FILE = "channels.jsonl"


@dataclass(frozen=True, slots=True)
class Fall:
    """The clock of a channel was lower than a sample before: `high` and `low` as steps past the wrap."""

    channel: str
    at_s: float
    high: int
    low: int


def falls(run: Path, axis: Axis) -> list[Fall]:
    """Every fall in the samples. Unreadable lines are skipped, because no verdict rests on samples."""
    before: dict[str, int] = {}
    found: list[Fall] = []
    for row in samples(run / "samples" / FILE):
        channel, steps, t_ns = row.get("channel"), steps_of(row.get("clock")), row.get("t_ns")
        if isinstance(channel, str) and steps is not None and isinstance(t_ns, int):
            at_s = axis.second(t_ns)
            if channel in before and steps < before[channel] and 0 <= at_s <= axis.end_s:
                found.append(Fall(channel, at_s, before[channel], steps))
            before[channel] = steps
    return found


def steps_of(value: Any) -> int | None:
    """A clock, given as a number or a string of digits, as steps past the wrap."""
    try:
        clock = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
    except ValueError:
        return None
    return past_wrap(clock) if clock is not None and abs(clock) <= CLOCK_MAX else None
