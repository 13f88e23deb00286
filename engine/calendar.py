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

What an expression names is in `engine/cron.py`, as if all days had 24 hours.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from engine.cron import DAY_S, Cron, Unreadable
from engine.cron import read as read_cron

if TYPE_CHECKING:
    from engine.ops.schedules import Timing

_EPOCH = datetime(1970, 1, 1)


class UnknownZone(Unreadable):
    """This machine does not know the time zone; another one may."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """The ticks of one timing. All times that it is given or returns are ms since 1970. Raises Unreadable for times beyond the
    year 9999."""

    timing: Timing
    zone: tzinfo
    cron: Cron | None = None

    def after(self, after_ms: int, anchor_ms: int) -> int:
        """The first tick after this time. Intervals count from the anchor, and nothing ticks before `start_ms`."""
        try:
            if self.cron:
                return self._cron_after(self.cron, max(after_ms, self.timing.start_ms - 1) // 1000) * 1000
            return self._repeated(self._repeats(after_ms, anchor_ms) + 1, anchor_ms)
        except (ValueError, ArithmeticError, OSError) as error:
            raise Unreadable(f"no tick within the calendar: {error}") from error

    def count(self, after_ms: int, until_ms: int, anchor_ms: int) -> int:
        """How many ticks there are in (after, until]: exact, and found without a walk through them."""
        if until_ms <= after_ms:
            return 0
        try:
            if self.cron:
                return self._cron_count(self.cron, max(after_ms, self.timing.start_ms - 1) // 1000, until_ms // 1000)
            return self._repeats(until_ms, anchor_ms) - self._repeats(after_ms, anchor_ms)
        except (ValueError, ArithmeticError, OSError) as error:
            raise Unreadable(f"no tick within the calendar: {error}") from error

    def between(self, first_ms: int, now_ms: int, anchor_ms: int, most: int) -> tuple[list[int], int]:
        """The last ticks in [first_ms, now_ms], at most so many, `first_ms` being one; and how many there are in all.

        However long ago the first one is, this looks at some ten times `most` ticks and no more.
        """
        total = 1 + self.count(first_ms, now_ms, anchor_ms)
        span_ms = 1000 * most
        while True:
            begin_ms = max(first_ms, now_ms - span_ms)
            ticks = [first_ms] if begin_ms == first_ms else []
            tick_ms = self.after(begin_ms if ticks else begin_ms - 1, anchor_ms)
            while tick_ms <= now_ms:
                ticks.append(tick_ms)
                tick_ms = self.after(tick_ms, anchor_ms)
            if begin_ms == first_ms or len(ticks) >= most:
                return ticks[-most:], total
            span_ms *= 8

    def _repeats(self, at_ms: int, anchor_ms: int) -> int:
        """How often an interval has passed between the anchor and this time; -1 before the anchor."""
        if at_ms < anchor_ms:
            return -1
        return (at_ms - anchor_ms) // self.timing.every_ms if self.timing.every_ms else self._months_passed(at_ms, anchor_ms)

    def _repeated(self, times: int, anchor_ms: int) -> int:
        """The tick after so many intervals from the anchor on."""
        return anchor_ms + times * self.timing.every_ms if self.timing.every_ms else self._month_tick(times, anchor_ms)

    def _cron_after(self, cron: Cron, after_s: int) -> int:
        """Walks through stretches of one offset from UTC. In each, the times of day from where the last one ended (in a stretch
        after a gap: from before the gap, in one after a repetition: from behind it) to its own end."""
        stretch_s = after_s - DAY_S
        offset_s = before_s = self._offset_s(stretch_s)
        while True:
            least_s = stretch_s + (offset_s if cron.every_hour else before_s)
            if after_s >= stretch_s:
                least_s = max(least_s, after_s + offset_s + 1)
            wall_s = cron.first(least_s)
            end_s = self._transition(stretch_s, wall_s - offset_s)
            if end_s is None:
                return max(stretch_s, wall_s - offset_s)
            stretch_s, before_s, offset_s = end_s, offset_s, self._offset_s(end_s)

    def _cron_count(self, cron: Cron, after_s: int, until_s: int) -> int:
        """How many instants in (after, until] are ticks, by the stretches of `_cron_after`. What falls into a gap is one tick, at
        its end, together with what the expression names for that instant itself."""
        stretch_s = after_s - DAY_S
        offset_s = before_s = self._offset_s(stretch_s)
        total = 0
        while True:
            next_s = self._transition(stretch_s, until_s)
            end_s = until_s + 1 if next_s is None else next_s
            least_s = stretch_s + (offset_s if cron.every_hour else max(before_s, offset_s))
            total += cron.count(max(least_s, after_s + offset_s + 1), end_s + offset_s)
            if stretch_s > after_s and not cron.every_hour and cron.count(stretch_s + before_s, stretch_s + offset_s):
                total += not cron.count(stretch_s + offset_s, stretch_s + offset_s + 1)
            if next_s is None:
                return total
            stretch_s, before_s, offset_s = next_s, offset_s, self._offset_s(next_s)

    def _transition(self, from_s: int, until_s: int) -> int | None:
        """The first instant in (from_s, until_s] at which the zone's offset is another than just before; None where it stays.
        Looks once a day: no zone has two transitions in a day that cancel each other."""
        if self.zone is UTC:
            return None
        offset_s = self._offset_s(from_s)
        while from_s < until_s:
            to_s = min(until_s, from_s + DAY_S)
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
        if self.zone is UTC:
            return 0
        offset = datetime.fromtimestamp(at_s, self.zone).utcoffset()
        return 0 if offset is None else offset.days * 86_400 + offset.seconds

    def _months_passed(self, at_ms: int, anchor_ms: int) -> int:
        """How many ticks after the anchor have come by this time."""
        anchor, at = self._wall(anchor_ms // 1000), self._wall(at_ms // 1000)
        months = (at.year - anchor.year) * 12 + at.month - anchor.month
        passed = max(0, months // self.timing.months - 1)
        while self._month_tick(passed + 1, anchor_ms) <= at_ms:
            passed += 1
        return passed

    def _month_tick(self, times: int, anchor_ms: int) -> int:
        if not times:
            return anchor_ms
        anchor_s, rest_ms = divmod(anchor_ms, 1000)
        anchor = self._wall(anchor_s)
        years, month = divmod(anchor.month - 1 + times * self.timing.months, 12)
        year, month = anchor.year + years, month + 1
        wall = anchor.replace(year=year, month=month, day=min(anchor.day, monthrange(year, month)[1]))
        return self._instant(wall) * 1000 + rest_ms

    def _wall(self, at_s: int) -> datetime:
        """The clock on the wall at this instant."""
        return _EPOCH + timedelta(seconds=at_s + self._offset_s(at_s))

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
    if timing.every_ms < 0 or timing.months < 0:
        raise Unreadable(f"an interval above 0, not {timing.every_ms} ms and {timing.months} months")
    return Calendar(timing, zone, read_cron(timing.cron) if timing.cron else None)
