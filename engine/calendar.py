"""When a schedule ticks next: pure, from its timing and a server time. Times are ms since 1970, ticks are whole seconds of a cron
expression, or multiples of an interval counted from its anchor, so that they do not drift (rule 24).

The rule for clocks that are put forward or back, declared here and proved against an oracle in the tests:

- A time of day that comes twice ticks the first time only. One that is skipped ticks once, at the instant after the gap,
  however many ticks fell into it.
- An expression that ticks in every hour of the day follows the clock on the wall: what comes twice ticks twice, and what is
  skipped does not tick. So an hourly job stays hourly.
- A monthly tick keeps the anchor's day and time of day in its zone. A shorter month ticks on its last day, and the one after it
  has the anchor's day again.
- Intervals in ms know no zone.

croniter is asked about times of day alone, as if all days had 24 hours: what it makes of zones differs from this.
"""

from __future__ import annotations

import copy
import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from engine.wire.operations import Timing

#: Transitions of a zone are looked for in steps of this length: no zone has two in a day that cancel each other.
_STEP_S = 86_400
_EPOCH = datetime(1970, 1, 1)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WORDS = frozenset((*_MONTHS, "sun", "mon", "tue", "wed", "thu", "fri", "sat", "l"))
_ALIASES = frozenset(("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"))
_FIELD = re.compile(r"[0-9a-z*,/#?-]+")


class Unreadable(ValueError):
    """A timing that cannot be read: the message says what is wrong with it."""


class UnknownZone(Unreadable):
    """This machine does not know the time zone; another one may."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """The ticks of one timing."""

    timing: Timing
    zone: tzinfo
    cron: Any = None
    every_hour: bool = False

    def after(self, after_ms: int, anchor_ms: int) -> int:
        """The first tick after this time (ms). Intervals count from the anchor, and nothing ticks before `start_ms`."""
        timing = self.timing
        if timing.every_ms:
            return (
                anchor_ms
                if after_ms < anchor_ms
                else anchor_ms + ((after_ms - anchor_ms) // timing.every_ms + 1) * timing.every_ms
            )
        if timing.months:
            return anchor_ms if after_ms < anchor_ms else self._month_after(after_ms, anchor_ms)
        return self._cron_after(max(after_ms, timing.start_ms - 1) // 1000) * 1000

    def between(self, first_ms: int, now_ms: int, anchor_ms: int, most: int) -> tuple[list[int], bool]:
        """The last ticks in [first_ms, now_ms], at most so many, `first_ms` being one; and whether there were more before them.

        However long ago the first one is, this looks at some ten times `most` ticks and no more.
        """
        span_ms = 1000 * most
        while True:
            begin_ms = max(first_ms, now_ms - span_ms)
            ticks = [first_ms] if begin_ms == first_ms else []
            tick_ms = self.after(begin_ms if ticks else begin_ms - 1, anchor_ms)
            while tick_ms <= now_ms:
                ticks.append(tick_ms)
                tick_ms = self.after(tick_ms, anchor_ms)
            if begin_ms == first_ms or len(ticks) > most:
                return ticks[-most:], len(ticks) > most
            span_ms *= 8

    def _cron_after(self, after_s: int) -> int:
        """Walks through stretches of one offset from UTC. In each, the times of day from where the last one ended (in a stretch
        after a gap: from before the gap, in one after a repetition: from behind it) to its own end."""
        stretch_s = after_s - _STEP_S
        offset_s = before_s = self._offset_s(stretch_s)
        while True:
            least_s = stretch_s + (offset_s if self.every_hour else before_s)
            if after_s >= stretch_s:
                least_s = max(least_s, after_s + offset_s + 1)
            wall_s = self._match(least_s)
            end_s = self._transition(stretch_s, wall_s - offset_s)
            if end_s is None:
                return max(stretch_s, wall_s - offset_s)
            stretch_s, before_s, offset_s = end_s, offset_s, self._offset_s(end_s)

    def _match(self, least_s: int) -> int:
        """The first time of day from here on that the expression names, in seconds of a clock without zone."""
        # A copy: the iterator has state, and threads share the calendar.
        return int(copy.copy(self.cron).get_next(float, start_time=float(least_s - 1)))

    def _transition(self, from_s: int, until_s: int) -> int | None:
        """The first instant in (from_s, until_s] at which the zone's offset is another than just before; None where it stays."""
        if self.zone is UTC:
            return None
        offset_s = self._offset_s(from_s)
        while from_s < until_s:
            to_s = min(until_s, from_s + _STEP_S)
            if self._offset_s(to_s) != offset_s:
                while to_s - from_s > 1:
                    middle_s = (from_s + to_s) // 2
                    if self._offset_s(middle_s) == offset_s:
                        from_s = middle_s
                    else:
                        to_s = middle_s
                return to_s
            from_s = to_s
        return None

    def _offset_s(self, at_s: int) -> int:
        """What the zone's clocks are ahead of UTC at this instant."""
        offset = datetime.fromtimestamp(at_s, self.zone).utcoffset()
        return 0 if offset is None else offset.days * 86_400 + offset.seconds

    def _month_after(self, after_ms: int, anchor_ms: int) -> int:
        anchor_s, rest_ms = divmod(anchor_ms, 1000)
        anchor = _EPOCH + timedelta(seconds=anchor_s + self._offset_s(anchor_s))
        after = _EPOCH + timedelta(seconds=after_ms // 1000 + self._offset_s(after_ms // 1000))
        passed = (after.year - anchor.year) * 12 + after.month - anchor.month
        for count in _from(max(1, passed // self.timing.months)):
            years, month = divmod(anchor.month - 1 + count * self.timing.months, 12)
            year, month = anchor.year + years, month + 1
            wall = anchor.replace(year=year, month=month, day=min(anchor.day, monthrange(year, month)[1]))
            tick_ms = self._instant(wall) * 1000 + rest_ms
            if tick_ms > after_ms:
                return tick_ms
        raise AssertionError

    def _instant(self, wall: datetime) -> int:
        """The instant of a time of day: the first of two, and the end of the gap for one that is skipped."""
        wall_s = (wall - _EPOCH) // timedelta(seconds=1)
        early_s, late_s = (
            wall_s - (wall.replace(tzinfo=self.zone, fold=fold).utcoffset() or timedelta()) // timedelta(seconds=1)
            for fold in (1, 0)
        )
        if early_s >= late_s:
            return late_s
        return self._transition(early_s, late_s) or late_s


@lru_cache(maxsize=1000)
def calendar(timing: Timing) -> Calendar:
    """The calendar of a timing. Raises Unreadable (UnknownZone), also for an expression that never ticks."""
    try:
        zone = UTC if timing.zone == "UTC" else ZoneInfo(timing.zone)
    except (KeyError, ValueError, OSError) as error:
        known = "a time zone that this machine knows, such as Europe/Berlin"
        raise UnknownZone(f"{known}; the package tzdata (ironclaim[zones]) brings them where the system has none") from error
    if bool(timing.cron) + bool(timing.every_ms) + bool(timing.months) != 1:
        raise Unreadable("one of cron, every_ms and months")
    if not timing.cron:
        return Calendar(timing, zone)
    # Loaded with the first expression: a worker without schedules does not need it.
    from croniter import croniter

    expression = timing.cron.lower()
    fields = expression.split()
    if expression not in _ALIASES:
        if len(fields) not in (5, 6):
            raise Unreadable("5 fields, or 6 of which the first are seconds")
        for field in fields:
            # What croniter takes and cannot do as others do: W (nearest weekday), R (random), H (hashed).
            if not _FIELD.fullmatch(field) or not set(re.findall("[a-z]+", field)) <= _WORDS:
                raise Unreadable(f"{field}: numbers, names of months and days, and * , / - # ? L")
    try:
        expanded, _ = croniter.expand(expression, second_at_beginning=True)
        walker = croniter(expression, 0.0, ret_type=float, second_at_beginning=True)
        walker.get_next(float)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise Unreadable(str(error)) from error
    hours = expanded[1]
    return Calendar(timing, zone, walker, hours == ["*"] or set(hours) >= set(range(24)))


def _from(least: int) -> Iterator[int]:
    while True:
        yield least
        least += 1
