"""When a schedule ticks next: pure, from its timing and a server time. Times are ms since 1970. The ticks of
a cron expression are whole seconds. Those of an interval are multiples of it, counted from its anchor, so
they do not drift (rule 24).

The rule for clocks that are put forward or back, proved against an oracle in the tests:

- A time of day that comes twice ticks the first time only. One that is skipped ticks once, at the instant
  after the gap, however many ticks fell into it.
- An expression that ticks in every hour of the day follows the clock on the wall: what comes twice ticks
  twice. What is skipped does not tick. So an hourly job stays hourly.
- A monthly tick keeps the anchor's day and time of day in its zone. A shorter month ticks on its last day,
  and the one after it has the anchor's day again.
- Intervals in ms know no zone.

What an expression names is decided below, as if all days had 24 hours."""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from engine.ops.base import frozen

if TYPE_CHECKING:
    from engine.ops.schedules import Timing


# -- Cron expressions: which days one names, and which times of day. Pure, and without zones: times are
# seconds of a clock on the wall, counted from 1970-01-01 00:00.
#
# The dialect is that of crontab(5), and the guide about schedules has it in a table. It is decided here and
# not by croniter, because croniter reads several forms as something else, and differs from version to version
# even in what 7 is. It knows the names of months and days. What cannot be read, or names no day of any year,
# is refused with the reason.

DAY_S = 86_400
_HOUR_S = 3600
_EPOCH = date(1970, 1, 1)
_WEEK = 7
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_VALUE = "[0-9]{1,9}|[a-z]{3}"
_SPAN = re.compile(rf"(\*|{_VALUE})(?:-({_VALUE}))?(?:/([0-9]{{1,4}}))?")
_NTH = re.compile("([^*/]+)#([1-5])")
_LAST_WEEKDAY = re.compile("l([0-7])|([0-7]|[a-z]{3})l")
#: The last day as the end of a range.
_TO_LAST = re.compile("-l(?=/|$)")


class Unreadable(ValueError):
    """A timing that cannot be read: the message says what is wrong with it."""


class _Field(NamedTuple):
    """A field: its name and its bounds."""

    name: str
    low: int
    high: int

    @property
    def size(self) -> int:
        return self.high - self.low + 1


_SECOND, _MINUTE, _HOUR = _Field("second", 0, 59), _Field("minute", 0, 59), _Field("hour", 0, 23)
_DAY, _MONTH = _Field("day of month", 1, 31), _Field("month", 1, 12)
#: Sunday is 0, and also 7.
_WEEKDAY = _Field("day of week", 0, 6)
#: What fields may have besides numbers.
_MORE = {
    _DAY: "; or ?, L for the last day",
    _MONTH: "; names are jan to dec",
    _WEEKDAY: "; or ?, mon#3 for the third Monday, friL for the last Friday; names are sun to sat",
}


@dataclass(slots=True)
class _Days:
    """What the two fields of days name. `both`: a day must be named by both of them, else by one."""

    both: bool
    days: set[int]
    last: bool
    weekdays: set[int] = field(default_factory=set[int])
    nths: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    last_weekdays: set[int] = field(default_factory=set[int])

    def name(self, day: int, weekday: int, length: int) -> bool:
        """Whether they name this day (from 1 on) of a month of so many days."""
        by_month = day in self.days or (self.last and day == length)
        by_week = (
            weekday in self.weekdays
            or (weekday, (day + 6) // _WEEK) in self.nths
            or (weekday in self.last_weekdays and day + _WEEK > length)
        )
        return (by_month and by_week) if self.both else (by_month or by_week)


@frozen
class Cron:
    """What an expression names. `hours` of the day and `in_hour`, seconds of each of them; `months`, and
    `days` of a month by the weekday of its first (Sunday 0) and its length. All are sorted."""

    hours: tuple[int, ...]
    in_hour: tuple[int, ...]
    months: tuple[int, ...]
    days: dict[tuple[int, int], tuple[int, ...]]

    @property
    def every_hour(self) -> bool:
        """Whether it ticks in each hour of a day that it names."""
        return len(self.hours) == _HOUR.size

    def first(self, least_s: int) -> int:
        """The first second from this one on that it names. Raises Unreadable if there is none in the
        calendar."""
        day, least = divmod(least_s, DAY_S)
        for named in self._days_from(day):
            time_s = self._time(least if named == day else 0)
            if time_s is not None:
                return named * DAY_S + time_s
        raise Unreadable(f"it does not tick any more before the year {MAXYEAR + 1}")

    def count(self, first_s: int, end_s: int) -> int:
        """How many seconds in [first, end) it names. Looks at days, not at ticks."""
        if end_s <= first_s:
            return 0
        (first_day, first), (end_day, end) = divmod(first_s, DAY_S), divmod(end_s, DAY_S)
        total, whole = 0, len(self.hours) * len(self.in_hour)
        for named in self._days_from(first_day):
            if named > end_day:
                break
            upto = self._times_before(end) if named == end_day else whole
            total += upto - (self._times_before(first) if named == first_day else 0)
        return total

    def _days_from(self, day: int) -> Iterator[int]:
        """The days that it names, from this one on, as days since 1970-01-01."""
        try:
            begin = _EPOCH + timedelta(day)
        except OverflowError:
            return
        year, month, least = begin.year, begin.month, begin.day
        while year <= MAXYEAR:
            if month in self.months:
                monday_first, length = monthrange(year, month)
                before = (date(year, month, 1) - _EPOCH).days - 1
                for named in self.days[(monday_first + 1) % _WEEK, length]:
                    if named >= least:
                        yield before + named
            least = 1
            year, month = (year, month + 1) if month < _MONTH.high else (year + 1, 1)

    def _time(self, least_s: int) -> int | None:
        """The first time of day (s) from this one on, None where the day has no more."""
        hour, rest_s = divmod(least_s, _HOUR_S)
        at = bisect_left(self.hours, hour)
        if at < len(self.hours) and self.hours[at] == hour:
            within = bisect_left(self.in_hour, rest_s)
            if within < len(self.in_hour):
                return hour * _HOUR_S + self.in_hour[within]
            at += 1
        return self.hours[at] * _HOUR_S + self.in_hour[0] if at < len(self.hours) else None

    def _times_before(self, time_s: int) -> int:
        """How many times of day lie before this one."""
        hour, rest_s = divmod(time_s, _HOUR_S)
        at = bisect_left(self.hours, hour)
        here = bisect_left(self.in_hour, rest_s) if at < len(self.hours) and self.hours[at] == hour else 0
        return at * len(self.in_hour) + here


def read_cron(expression: str) -> Cron:
    """What an expression names. Raises Unreadable, also for one that never ticks."""
    lower = expression.lower()
    fields = _ALIASES.get(lower.strip(), lower).split()
    if len(fields) not in (5, 6):
        raise Unreadable("5 fields, or 6 of which the first are seconds")
    second, minute, hour, day, month, weekday = fields if len(fields) == 6 else ("0", *fields)
    seconds, minutes = _numbers(_SECOND, second), _numbers(_MINUTE, minute)
    days, months = _days(day, weekday), _numbers(_MONTH, month)
    table = {
        (first, length): tuple(
            number
            for number in range(1, length + 1)
            if days.name(number, (first + number - 1) % _WEEK, length)
        )
        for first in range(_WEEK)
        for length in range(28, 32)
    }
    if not any(
        table[first, length] for first in range(_WEEK) for number in months for length in _lengths(number)
    ):
        raise Unreadable("it never ticks: no month that it names has a day that it names")
    in_hour = (one * 60 + other for one in sorted(minutes) for other in sorted(seconds))
    return Cron(tuple(sorted(_numbers(_HOUR, hour))), tuple(in_hour), tuple(sorted(months)), table)


def _lengths(month: int) -> tuple[int, ...]:
    """How many days a month may have."""
    return (28, 29) if month == 2 else (monthrange(2000, month)[1],)


def _days(day: str, weekday: str) -> _Days:
    """The two fields of days. One that begins with * restricts nothing by itself: then both must name a
    day."""
    day, weekday = ("*" if given == "?" else given for given in (day, weekday))
    items = day.split(",")
    days = _Days(
        both=day.startswith("*") or weekday.startswith("*"),
        days={
            number for item in items if item != "l" for number in _numbers(_DAY, _TO_LAST.sub("-31", item))
        },
        last="l" in items,
    )
    for item in weekday.split(","):
        nth, last = _NTH.fullmatch(item), _LAST_WEEKDAY.fullmatch(item)
        if nth:
            days.nths |= {(number, int(nth[2])) for number in _numbers(_WEEKDAY, nth[1])}
        elif last:
            days.last_weekdays |= _numbers(_WEEKDAY, last[1] or last[2])
        else:
            days.weekdays |= _numbers(_WEEKDAY, item)
    return days


def _numbers(field: _Field, text: str) -> set[int]:
    """The numbers of a list of values, ranges and steps. A range that ends before it begins goes round the
    end of the field."""
    found: set[int] = set()
    for item in text.split(","):
        span = _SPAN.fullmatch(item)
        if not span or (span[1] == "*" and span[2]) or (span[3] and int(span[3]) == 0):
            taken = "values, ranges such as 1-5, and *, with steps such as /2" + _MORE.get(field, "")
            raise Unreadable(f"{field.name} {item[:40]!r}: {taken}")
        low = field.low if span[1] == "*" else _value(field, span[1])
        # A value with a step goes on to the end of its field.
        high = _value(field, span[2]) if span[2] else field.high if span[1] == "*" or span[3] else low
        length = (high - low) % field.size
        if (
            field is _WEEKDAY
            and span[2]
            and low == high
            and span[2].lstrip("0") == "7" != span[1].lstrip("0")
        ):
            length = _WEEK  # From Sunday (0) to Sunday (7).
        found.update(
            field.low + (low - field.low + more) % field.size
            for more in range(0, length + 1, int(span[3] or 1))
        )
    return found


def _value(field: _Field, text: str) -> int:
    """A number or a name of a field. Raises Unreadable."""
    value = int(text) if text.isdecimal() else _named(field, text)
    if field is _WEEKDAY and value == _WEEK:
        return 0
    if value is None or not field.low <= value <= field.high:
        names = {_MONTH: " or jan to dec", _WEEKDAY: ", 7 or sun to sat"}.get(field, "")
        raise Unreadable(f"{field.name} {text!r}: {field.low} to {field.high}{names}")
    return value


@lru_cache(maxsize=100)
def _named(field: _Field, name: str) -> int | None:
    """The number of a month or of a day of the week, by its name as croniter knows it."""
    if field not in (_MONTH, _WEEKDAY):
        return None
    # Loaded with the first name: a worker without schedules does not need it.
    from croniter import croniter

    fields = f"* * * {name} *" if field is _MONTH else f"* * * * {name}"
    try:
        expanded, _ = croniter.expand(fields)
        return int(expanded[3 if field is _MONTH else 4][0])
    except ValueError:
        return None


_UNIX_EPOCH = datetime(1970, 1, 1)


class UnknownZone(Unreadable):
    """This machine does not know the time zone; another one may."""


@frozen
class Calendar:
    """The ticks of one timing. All times that it is given or returns are ms since 1970. Raises Unreadable for
    times beyond the year 9999."""

    timing: Timing
    zone: tzinfo
    cron: Cron | None = None

    def after(self, after_ms: int, anchor_ms: int) -> int:
        """The first tick after this time. Intervals count from the anchor, and nothing ticks before
        `start_ms`."""
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
                return self._cron_count(
                    self.cron, max(after_ms, self.timing.start_ms - 1) // 1000, until_ms // 1000
                )
            return self._repeats(until_ms, anchor_ms) - self._repeats(after_ms, anchor_ms)
        except (ValueError, ArithmeticError, OSError) as error:
            raise Unreadable(f"no tick within the calendar: {error}") from error

    def between(self, first_ms: int, now_ms: int, anchor_ms: int, most: int) -> tuple[list[int], int]:
        """The last ticks in [first_ms, now_ms], at most so many, `first_ms` being one; and how many there are
        in all.

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
        return (
            (at_ms - anchor_ms) // self.timing.every_ms
            if self.timing.every_ms
            else self._months_passed(at_ms, anchor_ms)
        )

    def _repeated(self, times: int, anchor_ms: int) -> int:
        """The tick after so many intervals from the anchor on."""
        return (
            anchor_ms + times * self.timing.every_ms
            if self.timing.every_ms
            else self._month_tick(times, anchor_ms)
        )

    def _cron_after(self, cron: Cron, after_s: int) -> int:
        """Walks through stretches of one offset from UTC. In each, the times of day from where the last one
        ended to its own end. A stretch after a gap begins before the gap; one after a repetition begins
        behind it."""
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
        """How many instants in (after, until] are ticks, by the stretches of `_cron_after`. What falls into a
        gap is one tick, at its end, together with what the expression names for that instant itself."""
        stretch_s = after_s - DAY_S
        offset_s = before_s = self._offset_s(stretch_s)
        total = 0
        while True:
            next_s = self._transition(stretch_s, until_s)
            end_s = until_s + 1 if next_s is None else next_s
            least_s = stretch_s + (offset_s if cron.every_hour else max(before_s, offset_s))
            total += cron.count(max(least_s, after_s + offset_s + 1), end_s + offset_s)
            if (
                stretch_s > after_s
                and not cron.every_hour
                and cron.count(stretch_s + before_s, stretch_s + offset_s)
            ):
                total += not cron.count(stretch_s + offset_s, stretch_s + offset_s + 1)
            if next_s is None:
                return total
            stretch_s, before_s, offset_s = next_s, offset_s, self._offset_s(next_s)

    def _transition(self, from_s: int, until_s: int) -> int | None:
        """The first instant in (from_s, until_s] at which the zone's offset is another than just before; None
        where it stays. Looks once a day: no zone has two transitions in a day that cancel each other."""
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
        return _UNIX_EPOCH + timedelta(seconds=at_s + self._offset_s(at_s))

    def _instant(self, wall: datetime) -> int:
        """The instant of a time of day: the first of two, and the end of the gap for one that is skipped."""
        wall_s = (wall - _UNIX_EPOCH) // timedelta(seconds=1)
        early_s, late_s = (
            wall_s
            - (wall.replace(tzinfo=self.zone, fold=fold).utcoffset() or timedelta()) // timedelta(seconds=1)
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
        raise UnknownZone(
            f"{known}; the package tzdata (ironclaim[zones]) brings them where the system has none"
        ) from error
    if bool(timing.cron) + bool(timing.every_ms) + bool(timing.months) != 1:
        raise Unreadable("one of cron, every_ms and months")
    if timing.every_ms < 0 or timing.months < 0:
        raise Unreadable(f"an interval above 0, not {timing.every_ms} ms and {timing.months} months")
    return Calendar(timing, zone, read_cron(timing.cron) if timing.cron else None)
