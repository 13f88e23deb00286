"""Cron expressions against an oracle that knows neither croniter nor the engine's code: it writes out every day of twenty years
and asks of each, in the words of crontab(5), whether the expression names it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import cache
from itertools import islice, product
from random import Random
from zoneinfo import ZoneInfo

import pytest

from engine.calendar import Cron, Unreadable, calendar, read_cron
from engine.ops.schedules import Timing
from tests.engine.helpers.producing import refused
from tests.walks import examples

DAY_S = 86_400
EPOCH = date(1970, 1, 1)
#: Twenty years from each: today's, those around 2100, which has no 29 February, and those around 2000, which has one.
STARTS = (1995, 2026, 2090)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu")
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
#: By field: its least and its greatest number, and the number of its first name.
FIELDS = {
    "second": (0, 59, 0, []), "minute": (0, 59, 0, []), "hour": (0, 23, 0, []), "day": (1, 31, 0, []),
    "month": (1, 12, 1, MONTHS), "weekday": (0, 6, 0, WEEKDAYS),
}  # fmt: skip


# -- the oracle


@cache
def numbers(field: str, text: str) -> set[int]:
    """What a list of values, ranges and steps names: each range is counted through, one by one."""
    least, greatest, first_name, names = FIELDS[field]

    def value(word: str) -> int:
        return names.index(word) + first_name if word in names else int(word)

    found: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        begin, dash, end = span.partition("-")
        if span == "*":
            at, last = least, greatest
        else:
            at = value(begin)
            last = value("31" if end == "l" else end) if dash else greatest if step else at
        # Sunday is 0 as well as 7; a range from 0 to 7 is a week and a day.
        if field == "weekday":
            last = last if (at, last) == (0, 7) else last % 7
            at %= 7
        counted = [at]
        while at != last:
            at = at + 1 if at < greatest or last > greatest else least
            counted.append(at)
        found |= {at % 7 if field == "weekday" else at for at in counted[:: int(step or 1)]}
    return found


#: A day and what fields of days can tell of it: its number, whether its month ends with it, or within a week, and its weekday.
Day = tuple[date, tuple[int, bool, bool, int]]


def twenty_years(year: int) -> list[Day]:
    """Every day from the first of this year on."""

    def of(at: date) -> Day:
        return at, (at.day, (at + timedelta(1)).month != at.month, (at + timedelta(7)).month != at.month, at.isoweekday())

    return [of(date(year, 1, 1) + timedelta(number)) for number in range(20 * 365 + 5)]


def named_days(day: str, month: str, weekday: str, days: list[Day]) -> set[date]:
    """The days that an expression names, of all these."""

    def by_month(at: date) -> bool:
        items, last = day.replace("?", "*").split(","), (at + timedelta(1)).month != at.month
        return ("l" in items and last) or at.day in numbers("day", ",".join(item for item in items if item != "l") or "99")

    def by_week(at: date) -> bool:
        today = at.isoweekday() % 7
        for item in weekday.replace("?", "*").split(","):
            wanted, nth, count = item.partition("#")
            if nth:
                fits = today in numbers("weekday", wanted) and at.month == (at - timedelta(7 * int(count) - 7)).month
                if fits and at.month != (at - timedelta(7 * int(count))).month:
                    return True
            elif "l" in (item[0], item[-1]):
                if today in numbers("weekday", item.strip("l")) and at.month != (at + timedelta(7)).month:
                    return True
            elif today in numbers("weekday", item):
                return True
        return False

    # Each kind of day is asked about once.
    kinds: dict[tuple[int, bool, bool, int], bool] = {}
    months, starred = numbers("month", month), day[0] in "*?" or weekday[0] in "*?"
    for at, kind in days:
        if kind not in kinds:
            both = (by_month(at), by_week(at))
            kinds[kind] = all(both) if starred else any(both)
    return {at for at, kind in days if kinds[kind] and at.month in months}


def named_times(second: str, minute: str, hour: str) -> list[int]:
    times = product(numbers("hour", hour), numbers("minute", minute), numbers("second", second))
    return sorted(hours * 3600 + minutes * 60 + seconds for hours, minutes, seconds in times)


def instants(walls: Iterator[datetime], zone: str, *, every_hour: bool) -> Iterator[int]:
    """The ticks (s) of these times of day, as the guide says it: what comes twice ticks the first time, what is skipped right
    after the gap; but a clock that is followed each hour ticks both times, and never in a gap."""
    known, seen = ZoneInfo(zone), -1
    for wall in walls:
        for fold in (0, 1):
            at_s = int(wall.replace(tzinfo=known, fold=fold).timestamp())
            if datetime.fromtimestamp(at_s, known).replace(tzinfo=None) != wall:
                if every_hour or fold:
                    continue
                while datetime.fromtimestamp(at_s - 60, known).replace(tzinfo=None) >= wall:
                    at_s -= 60
                at_s -= at_s % 60
            elif fold and not every_hour:
                continue
            if at_s > seen or every_hour:
                yield at_s
                seen = max(seen, at_s)


# -- random expressions


def one_item(random: Random, field: str) -> str:
    least, greatest, first_name, names = FIELDS[field]

    def word() -> str:
        number = random.randint(least, 7 if field == "weekday" else greatest)
        if names and random.random() < 0.4:
            name = names[(number - first_name) % len(names)]
            return random.choice((name, name.upper(), name.title()))
        return f"{number:02}" if random.random() < 0.1 else str(number)

    step = f"/{random.choice((1, 2, 3, 4, 5, 7, 9, 10, 15, 20, 40))}" if random.random() < 0.3 else ""
    return random.choice((word(), word(), word(), f"{word()}-{word()}{step}", f"{word()}{step}"))


def one_field(random: Random, name: str, star: float) -> str:
    if random.random() < star:
        step = random.choice(("", "", "", "/1", "/2", "/3", "/5", "/7", "/13", ",1", "/2,4"))
        return "*" + step if step or name not in ("day", "weekday") else random.choice("*?")
    items = [one_item(random, name) for _ in range(random.choice((1, 1, 1, 2, 3)))]
    if name == "day" and random.random() < 0.25:
        items.append(random.choice(("L", "l", f"{random.randint(1, 31)}-L")))
    if name == "weekday":
        for _ in range(random.choice((0, 0, 1, 2))):
            day = random.choice((*WEEKDAYS, "MON", "Fri", "0", "7", "3"))
            items.append(random.choice((f"{day}#{random.randint(1, 5)}", f"{day}L", f"L{random.randint(0, 7)}")))
        if random.random() < 0.1:
            items = [f"{random.choice(WEEKDAYS)}-{random.choice(WEEKDAYS)}#{random.randint(1, 5)}"]
    random.shuffle(items)
    return ",".join(items)


def expression(random: Random) -> list[str]:
    """Six fields, the first of them `0` for an expression of five."""
    second = one_field(random, "second", 0.1) if random.random() < 0.2 else "0"
    minute, hour = one_field(random, "minute", 0.1), one_field(random, "hour", 0.15)
    star = random.choice((0.0, 0.5, 1.0))
    return [
        second, minute, hour, one_field(random, "day", star), one_field(random, "month", 0.6),
        one_field(random, "weekday", 1 - star),
    ]  # fmt: skip


def ticks(cron: Cron, first_s: int, end_s: int) -> Iterator[int]:
    at_s = cron.first(first_s)
    while at_s < end_s:
        yield at_s
        at_s = cron.first(at_s + 1)


def seconds(day: date) -> int:
    return (day - EPOCH).days * DAY_S


@pytest.mark.feature("BQ09", "BN16", "BN17")
def test_random_expressions_name_the_days_and_times_of_the_oracle_for_twenty_years() -> None:
    random, refused, years = Random(20), 0, {year: twenty_years(year) for year in STARTS}
    for number in range(examples(60)):
        given = expression(random)
        text = random.choice((" ", "  ", "\t")).join(given[given[0] == "0" :])
        second, minute, hour, day, month, weekday = (one.lower() for one in given)
        days = years[random.choice(STARTS)]
        wanted, times = named_days(day, month, weekday, days), named_times(second, minute, hour)
        try:
            cron = read_cron(text)
        except Unreadable as error:
            assert "never ticks" in str(error) and not wanted, (number, text, error)
            refused += 1
            continue
        first_s, end_s, named = seconds(days[0][0]), seconds(days[-1][0]) + DAY_S, set[date]()
        at_s = cron.first(first_s)
        while at_s < end_s:
            assert at_s % DAY_S == times[0], (number, text)
            named.add(EPOCH + timedelta(at_s // DAY_S))
            at_s = cron.first(at_s - at_s % DAY_S + DAY_S)
        assert named == wanted, (number, text, sorted(named ^ wanted)[:5])
        assert cron.count(first_s, end_s) == len(wanted) * len(times), (number, text)
        if wanted:
            some_s = seconds(random.choice(sorted(wanted)))
            assert [one - some_s for one in islice(ticks(cron, some_s, some_s + DAY_S), 300)] == times[:300], (number, text)
            in_zone(random, text, sorted(wanted), times, every_hour=numbers("hour", hour) == set(range(24)))
    assert refused < examples(60) // 10


def in_zone(random: Random, text: str, days: list[date], times: list[int], *, every_hour: bool) -> None:
    """Some hundred ticks in a zone are those of the oracle, walked and counted."""
    zone, begin = random.choice(ZONES), random.randrange(len(days))
    some = days[begin : begin + 1 + 200 // len(times)]
    walls = (datetime.combine(day, datetime.min.time()) + timedelta(seconds=one) for day in some for one in times[:200])
    wanted = sorted(set(instants(walls, zone, every_hour=every_hour)))
    known, at_ms, found = calendar(Timing(cron=text, zone=zone)), wanted[0] * 1000 - 1, list[int]()
    while len(found) < len(wanted):
        at_ms = known.after(at_ms, 0)
        found.append(at_ms // 1000)
    assert found == wanted, (text, zone)
    assert known.count(wanted[0] * 1000 - 1, at_ms, 0) == len(wanted), (text, zone)
    assert known.count(wanted[0] * 1000, at_ms - 1, 0) == max(0, len(wanted) - 2), (text, zone)


#: Expressions of one field or two, and what they name of the days of August 2026, which begins on a Saturday.
AUGUST = {
    # Both fields restricted: either of them.
    "15 * mon#3": [15, 17], "15 * mon#1": [3, 15], "15 * mon": [3, 10, 15, 17, 24, 31],
    "1-31 * mon": list(range(1, 32)), "1,* * mon": list(range(1, 32)), "L * friL": [28, 31],
    "15,L * sat#5,friL": [15, 28, 29, 31],
    # A field that begins with * is no restriction by itself: both of them.
    "*/1 * mon": [3, 10, 17, 24, 31], "*/2 * mon": [3, 17, 31], "*,1 * mon": [3, 10, 17, 24, 31],
    "? * mon": [3, 10, 17, 24, 31], "*/2 * mon#3,fri#2": [17], "15 * */2": [15], "15 * */3": [15],
    "L * */2": [], "13,L * */1": [13, 31], "*/10 * */2": [1, 11],
    # Lists of all kinds of weekdays.
    "* * mon#1,wed#3": [3, 19], "* * mon#1,fri": [3, 7, 14, 21, 28], "* * mon-wed#1": [3, 4, 5],
    "* * sun#5": [30], "* * tue#5": [], "* * 7#1": [2], "* * L5": [28], "* * 5L": [28],
    "* * MONl,L0": [30, 31], "* * sat-mon": [1, 2, 3, 8, 9, 10, 15, 16, 17, 22, 23, 24, 29, 30, 31],
    "* * 5-7/2": [2, 7, 9, 14, 16, 21, 23, 28, 30], "* * 6-1/2": [1, 3, 8, 10, 15, 17, 22, 24, 29, 31],
    "* * 0-7": list(range(1, 32)), "* * 7-7": [2, 9, 16, 23, 30], "* * sun-sun": [2, 9, 16, 23, 30],
    "* * 07": [2, 9, 16, 23, 30],
    # Days of the month.
    "5-5 * *": [5], "05,007 * *": [5, 7], "25/3 * *": [25, 28, 31], "28-3 * *": [1, 2, 3, 28, 29, 30, 31],
    "28-3/2 * *": [1, 3, 28, 30], "29-L * *": [29, 30, 31], "* aug-aug *": list(range(1, 32)),
    "* nov-aug/3 *": list(range(1, 32)), "* 1/7 *": list(range(1, 32)), "* jan,9 *": [],
}  # fmt: skip


@pytest.mark.parametrize("days", AUGUST)
def test_the_table_of_the_guide(days: str) -> None:
    first_s, end_s = seconds(date(2026, 8, 1)), seconds(date(2026, 9, 1))
    found = ticks(read_cron(f"0 0 {days}"), first_s, end_s)
    assert [(EPOCH + timedelta(at_s // DAY_S)).day for at_s in found] == AUGUST[days]


#: Times of day of one day, in minutes.
TIMES = {
    "5/15 0": [5, 20, 35, 50], "59/15 0": [59], "*/40 0": [0, 40], "*/90 0": [0],
    "0 22-2": [0, 60, 120, 22 * 60, 23 * 60], "0 21-4/2": [60, 180, 21 * 60, 23 * 60],
    "50-10/10 0": [0, 10, 50], "00,0 5-5": [300], "0 */7": [0, 420, 840, 1260],
}  # fmt: skip


@pytest.mark.parametrize("times", TIMES)
def test_times_of_day(times: str) -> None:
    assert list(ticks(read_cron(f"{times} * * *"), 0, DAY_S)) == [60 * minute for minute in TIMES[times]]


@pytest.mark.parametrize(("text", "reason"), [
    ("0 0 30 2 *", "never ticks"), ("0 0 31 apr,jun,9,11 *", "never ticks"),
    ("0 0 30,31 2 */2", "never ticks"), ("0 0 31 2 mon#5-", "day of week"),
    ("0 0 15W * *", "day of month '15w'"), ("0 0 L-3 * *", "day of month"), ("0 0 * * L", "day of week"),
    ("0 0 * * mon#6", "day of week"), ("0 0 * * mon#0", "day of week"), ("0 0 * * *#2", "day of week"),
    ("0 0 * * 8", "day of week '8'"), ("0 0 * * jan", "day of week 'jan'"),
    ("0 0 * mon *", "month 'mon'"), ("0 0 * 13 *", "month '13'"), ("0 0 0 * *", "day of month '0'"),
    ("0 24 * * *", "hour '24'"), ("60 0 * * *", "minute '60'"), ("60 0 0 * * *", "second '60'"),
    ("? 0 * * *", "minute '?'"), ("0 0 ?/2 * *", "day of month"), ("*-5 * * * *", "minute"),
    ("*/0 * * * *", "minute"), ("-5 * * * *", "minute"), ("1,,2 * * * *", "minute ''"),
    ("R * * * *", "minute 'r'"), ("H * * * *", "minute 'h'"), ("\u0661 * * * *", "minute"),
    ("@reboot", "5 fields"), ("* * * *", "5 fields"), ("* * * * * * *", "5 fields"), ("", "5 fields"),
    ("9" * 9000 + " * * * *", "minute '9999"),
])  # fmt: skip
def test_what_cannot_be_read_is_refused_by_the_name_of_the_field(text: str, reason: str) -> None:
    assert len(str(refused(Unreadable, reason.replace("?", r"\?"), read_cron, text))) < 200


def test_the_rarest_day_is_found_and_a_time_beyond_the_calendar_is_an_error() -> None:
    """29 February is a Sunday in 2088 and 2128, with 2100 between them."""
    rare = read_cron("0 0 29 2 */7")
    assert list(ticks(rare, seconds(date(2088, 3, 1)), seconds(date(2129, 1, 1)))) == [seconds(date(2128, 2, 29))]
    known = calendar(Timing(cron="0 0 29 2 *", zone="Europe/Berlin"))
    for after_ms in (253_402_300_800_000, 10**18, 10**30):
        refused(Unreadable, "", known.after, after_ms, 0)
