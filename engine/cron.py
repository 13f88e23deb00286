"""Cron expressions: which days one names, and which times of day. Pure, and without zones: times are seconds of a clock on the
wall, counted from 1970-01-01 00:00.

The dialect is that of crontab(5), and the guide about schedules has it in a table. It is decided here and not by croniter,
because croniter reads several forms as something else, and differs from version to version even in what 7 is; it knows the names
of months and days. What cannot be read, or names no day of any year, is refused with the reason.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import MAXYEAR, date, timedelta
from functools import lru_cache
from typing import NamedTuple

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


@dataclass(frozen=True, slots=True)
class Cron:
    """What an expression names. `hours` of the day and `in_hour`, seconds of each of them; `months`, and `days` of a month by the
    weekday of its first (Sunday 0) and its length. All are sorted."""

    hours: tuple[int, ...]
    in_hour: tuple[int, ...]
    months: tuple[int, ...]
    days: dict[tuple[int, int], tuple[int, ...]]

    @property
    def every_hour(self) -> bool:
        """Whether it ticks in each hour of a day that it names."""
        return len(self.hours) == _HOUR.size

    def first(self, least_s: int) -> int:
        """The first second from this one on that it names. Raises Unreadable if there is none in the calendar."""
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


def read(expression: str) -> Cron:
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
            number for number in range(1, length + 1) if days.name(number, (first + number - 1) % _WEEK, length)
        )
        for first in range(_WEEK)
        for length in range(28, 32)
    }
    if not any(table[first, length] for first in range(_WEEK) for number in months for length in _lengths(number)):
        raise Unreadable("it never ticks: no month that it names has a day that it names")
    in_hour = (one * 60 + other for one in sorted(minutes) for other in sorted(seconds))
    return Cron(tuple(sorted(_numbers(_HOUR, hour))), tuple(in_hour), tuple(sorted(months)), table)


def _lengths(month: int) -> tuple[int, ...]:
    """How many days a month may have."""
    return (28, 29) if month == 2 else (monthrange(2000, month)[1],)


def _days(day: str, weekday: str) -> _Days:
    """The two fields of days. One that begins with * restricts nothing by itself: then both must name a day."""
    day, weekday = ("*" if given == "?" else given for given in (day, weekday))
    items = day.split(",")
    days = _Days(
        both=day.startswith("*") or weekday.startswith("*"),
        days={number for item in items if item != "l" for number in _numbers(_DAY, _TO_LAST.sub("-31", item))},
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
    """The numbers of a list of values, ranges and steps. A range that ends before it begins goes round the end of the field."""
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
        if field is _WEEKDAY and span[2] and low == high and span[2].lstrip("0") == "7" != span[1].lstrip("0"):
            length = _WEEK  # From Sunday (0) to Sunday (7).
        found.update(field.low + (low - field.low + more) % field.size for more in range(0, length + 1, int(span[3] or 1)))
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
