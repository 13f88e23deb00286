"""When schedules tick (rule 24). Cron expressions against an oracle that knows neither croniter nor the engine's code: it writes
out every day of twenty years and asks of each, in the words of crontab(5), whether the expression names it."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import islice, product
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.calendar import Cron, Unreadable, calendar, read_cron
from tests import golden
from tests.engine.using import Timing, refused
from tests.walks import examples

DAY_S = 86_400
MINUTE_MS, DAY_MS = 60_000, 86_400_000
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


def day_of(at: date) -> Day:
    return at, (at.day, (at + timedelta(1)).month != at.month, (at + timedelta(7)).month != at.month, at.isoweekday())


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


def walls_of(days: list[date], times: list[int]) -> Iterator[datetime]:
    return (datetime.combine(day, datetime.min.time()) + timedelta(seconds=one) for day in days for one in times)


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
    random, refused, days_of_years = Random(20), 0, range(20 * 365 + 5)
    years = {year: [day_of(date(year, 1, 1) + timedelta(number)) for number in days_of_years] for year in STARTS}
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
    wanted = sorted(set(instants(walls_of(some, times[:200]), zone, every_hour=every_hour)))
    timing, first_ms, last_ms = Timing(cron=text, zone=zone), wanted[0] * 1000, wanted[-1] * 1000
    assert walked(timing, first_ms, last_ms) == [at_s * 1000 for at_s in wanted], (text, zone)
    assert calendar(timing).count(first_ms - 1, last_ms, 0) == len(wanted), (text, zone)
    assert calendar(timing).count(first_ms, last_ms - 1, 0) == max(0, len(wanted) - 2), (text, zone)


#: Expressions of days. First those that restrict both fields: either of them.
DAYS = [
    "15 * mon#3", "15 * mon#1", "15 * mon", "1-31 * mon", "1,* * mon", "L * friL", "15,L * sat#5,friL",
    # A field that begins with * is no restriction by itself: both of them.
    "*/1 * mon", "*/2 * mon", "*,1 * mon", "? * mon", "*/2 * mon#3,fri#2", "15 * */2", "15 * */3", "L * */2", "13,L * */1",
    "*/10 * */2",
    # Lists of all kinds of weekdays.
    "* * mon#1,wed#3", "* * mon#1,fri", "* * mon-wed#1", "* * sun#5", "* * tue#5", "* * 7#1", "* * L5", "* * 5L",
    "* * MONl,L0", "* * sat-mon", "* * 5-7/2", "* * 6-1/2", "* * 0-7", "* * 7-7", "* * sun-sun", "* * 07",
    # Days of the month.
    "5-5 * *", "05,007 * *", "25/3 * *", "28-3 * *", "28-3/2 * *", "29-L * *", "* aug-aug *", "* nov-aug/3 *", "* 1/7 *",
    "* jan,9 *",
]  # fmt: skip
TIMES = ["5/15 0", "59/15 0", "*/40 0", "*/90 0", "0 22-2", "0 21-4/2", "50-10/10 0", "00,0 5-5", "0 */7"]
WRONG = [
    "0 0 30 2 *", "0 0 31 apr,jun,9,11 *", "0 0 30,31 2 */2", "0 0 31 2 mon#5-", "0 0 15W * *", "0 0 L-3 * *",
    "0 0 * * L", "0 0 * * mon#6", "0 0 * * mon#0", "0 0 * * *#2", "0 0 * * 8", "0 0 * * jan", "0 0 * mon *", "0 0 * 13 *",
    "0 0 0 * *", "0 24 * * *", "60 0 * * *", "60 0 0 * * *", "? 0 * * *", "0 0 ?/2 * *", "*-5 * * * *", "*/0 * * * *",
    "-5 * * * *", "1,,2 * * * *", "R * * * *", "H * * * *", "\u0661 * * * *", "@reboot", "* * * *", "* * * * * * *", "",
    "9" * 9000 + " * * * *",
]  # fmt: skip


def august() -> golden.Told:
    """The days that are named of August 2026, which begins on a Saturday."""
    for days in DAYS:
        found = ticks(read_cron(f"0 0 {days}"), seconds(date(2026, 8, 1)), seconds(date(2026, 9, 1)))
        yield days, [(EPOCH + timedelta(at_s // DAY_S)).day for at_s in found]


def minutes() -> golden.Told:
    """Of one day."""
    return [(times, [at_s / 60 for at_s in ticks(read_cron(f"{times} * * *"), 0, DAY_S)]) for times in TIMES]


def refusals() -> golden.Told:
    """By the name of the field, and bounded."""
    return [(text[:30], golden.outcome(read_cron, text)) for text in WRONG]


def next_days() -> golden.Told:
    """After the first of January 2026."""
    for text in ("0 0 L * *", "@weekly", "0 0 29 feb *", "0 0 * * MON#2", "0 0 ? * fri"):
        yield text, datetime.fromtimestamp(calendar(Timing(cron=text)).after(ms("2026-01-01"), 0) / 1000, UTC).isoformat()


def test_what_expressions_say_in_the_table_of_the_guide_and_what_cannot_be_read() -> None:
    golden.tells("engine/cron.txt", august, minutes, refusals, next_days)


def test_the_rarest_day_is_found_and_a_time_beyond_the_calendar_is_an_error() -> None:
    """29 February is a Sunday in 2088 and 2128, with 2100 between them."""
    rare = read_cron("0 0 29 2 */7")
    assert list(ticks(rare, seconds(date(2088, 3, 1)), seconds(date(2129, 1, 1)))) == [seconds(date(2128, 2, 29))]
    assert read_cron("0 0 31 12 *").first(seconds(date(9999, 1, 1))) == seconds(date(9999, 12, 31)), "its last day"
    known = calendar(Timing(cron="0 0 29 2 *", zone="Europe/Berlin"))
    for after_ms in (253_402_300_800_000, 10**18, 10**30):
        refused(Unreadable, "", known.after, after_ms, 0)
    refused(Unreadable, "no tick within the calendar", calendar(Timing(months=1)).count, 0, 10**18, 0)


# -- zones, intervals, months and counts


#: A zone, a day near one of its transitions: forward and back, also by half an hour, and at midnight.
TRANSITIONS = [
    ("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25"), ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"), ("Australia/Lord_Howe", "2026-04-05"), ("Australia/Lord_Howe", "2026-10-04"),
    ("America/Sao_Paulo", "2018-11-04"), ("America/Sao_Paulo", "2018-02-18"), ("Africa/Casablanca", "2026-02-15"),
    ("Pacific/Apia", "2011-12-30"), ("Asia/Kathmandu", "1986-01-01"), ("UTC", "2026-03-29"),
]  # fmt: skip
EXPRESSIONS = [
    "0 2 * * *", "30 2 * * *", "15 * * * *", "*/20 * * * *", "0 0 * * *", "*/10 1-3 * * *",
    "45 1,2 * * sat,sun", "0 */2 * * *", "0 3 29-31 * *", "0 0 1 * mon",
]  # fmt: skip


def ms(text: str, zone: str = "UTC", fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


def oracle(expression: str, zone: str, first_ms: int, last_ms: int) -> list[int]:
    """Every tick in [first, last]."""
    minute, hour, day, month, weekday = expression.split()
    first = EPOCH + timedelta(first_ms // DAY_MS - 2)
    some = [day_of(first + timedelta(number)) for number in range((last_ms - first_ms) // DAY_MS + 5)]
    walls = walls_of(sorted(named_days(day, month, weekday, some)), named_times("0", minute, hour))
    found = {at_s * 1000 for at_s in instants(walls, zone, every_hour=numbers("hour", hour) == set(range(24)))}
    return sorted(at_ms for at_ms in found if first_ms <= at_ms <= last_ms)


def walked(timing: Timing, first_ms: int, last_ms: int) -> list[int]:
    known, found = calendar(timing), list[int]()
    at_ms = known.after(first_ms - 1, 0)
    while at_ms <= last_ms:
        found.append(at_ms)
        at_ms = known.after(at_ms, 0)
    return found


@pytest.mark.feature("BQ09", "BN16", "BN17")
@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize(("zone", "day"), TRANSITIONS)
def test_every_tick_around_a_transition_is_the_oracles(zone: str, day: str, expression: str) -> None:
    first_ms = ms(day) - DAY_MS
    last_ms = first_ms + 3 * DAY_MS
    assert walked(Timing(cron=expression, zone=zone), first_ms, last_ms) == oracle(expression, zone, first_ms, last_ms)


SOME: dict[str, list[Any]] = {
    "near": TRANSITIONS, "minute": ["0", "30", "59", "*/7", "5,35", "*"], "day": ["*", "1", "28-31", "*/2"],
    "hour": ["*", "0", "1", "2", "3", "1-3", "*/5", "0-23", "23"], "weekday": ["*", "0", "mon", "5-6"],
}  # fmt: skip


@given(**{name: st.sampled_from(values) for name, values in SOME.items()}, after=st.integers(0, 3 * 24 * 60))
def test_the_next_tick_is_the_oracles(near: tuple[str, str], minute: str, hour: str, day: str, weekday: str, after: int) -> None:
    zone, date = near
    expression, after_ms = f"{minute} {hour} {day} * {weekday}", ms(date) - DAY_MS + after * MINUTE_MS
    horizon_ms = after_ms + 2 * DAY_MS
    expected = next(iter(oracle(expression, zone, after_ms + MINUTE_MS, horizon_ms)), None)
    found = calendar(Timing(cron=expression, zone=zone)).after(after_ms, 0)
    assert found == expected if expected is not None else found > horizon_ms


@pytest.mark.feature("BN17")
def test_the_declared_rule_in_words() -> None:
    berlin = "Europe/Berlin"
    daily = calendar(Timing(cron="30 2 * * *", zone=berlin))
    # 02:30 is skipped on 29 March: 03:00 summer time is the first instant after the gap. On 25 October it comes twice.
    for after, tick in (("03-28 12:00", "03-29 03:00"), ("03-29 03:00", "03-30 02:30"),
                        ("10-24 12:00", "10-25 02:30"), ("10-25 02:30", "10-26 02:30")):  # fmt: skip
        assert daily.after(ms(f"2026-{after}", berlin), 0) == ms(f"2026-{tick}", berlin)
    hourly = calendar(Timing(cron="30 * * * *", zone=berlin))
    assert hourly.after(ms("2026-03-29 01:30", berlin), 0) == ms("2026-03-29 03:30", berlin)
    assert hourly.after(ms("2026-10-25 02:30", berlin), 0) == ms("2026-10-25 02:30", berlin, fold=1)
    # Midnight does not exist on that day.
    midnight, zone = calendar(Timing(cron="0 0 * * *", zone="America/Sao_Paulo")), "America/Sao_Paulo"
    assert midnight.after(ms("2018-11-03 12:00", zone), 0) == ms("2018-11-04 01:00", zone)


@pytest.mark.feature("BN16")
def test_of_six_fields_the_first_is_the_second() -> None:
    ticks = walked(Timing(cron="*/20 30 4 * * *"), ms("2026-01-01") + 1, ms("2026-01-02 04:30"))
    assert ticks == [ms(f"2026-01-01 04:30:{second}") for second in ("00", "20", "40")] + [ms("2026-01-02 04:30")]


@pytest.mark.parametrize("timing", [
    Timing(cron="* * * *"), Timing(cron="jan * * * *"), Timing(cron="* * * * *", zone="Mars/Olympus"), Timing(every_ms=-1000),
    Timing(cron="* * * * *", zone="../etc/passwd"), Timing(cron="* * * * *", every_ms=1000), Timing(months=-1), Timing(),
], ids=str)  # fmt: skip
def test_a_timing_that_cannot_be_read_says_so(timing: Timing) -> None:
    refused(Unreadable, "above 0" if timing.every_ms < 0 or timing.months < 0 else "", calendar, timing)


@pytest.mark.feature("MQ08")
@given(every_ms=st.integers(100, 10**10), anchor_ms=st.integers(0, 2**42), after_ms=st.integers(0, 2**42))
def test_an_interval_counts_from_its_anchor_and_does_not_drift(every_ms: int, anchor_ms: int, after_ms: int) -> None:
    assert (tick_ms := calendar(Timing(every_ms=every_ms)).after(after_ms, anchor_ms)) > after_ms
    assert (tick_ms - anchor_ms) % every_ms == 0 and tick_ms - every_ms <= max(after_ms, anchor_ms - every_ms)


@pytest.mark.feature("MQ09")
def test_months_keep_the_day_of_the_anchor_where_the_month_has_it() -> None:
    zone = "Europe/Berlin"
    known, found = calendar(Timing(months=1, zone=zone)), list[str]()
    anchor_ms = at_ms = ms("2028-01-31 09:30:07.250", zone)
    for _ in range(14):
        at_ms = known.after(at_ms, anchor_ms)
        found.append(datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).isoformat(" ", "milliseconds")[:23])
    days = ["02-29", "03-31", "04-30", "05-31", "06-30", "07-31", "08-31", "09-30", "10-31", "11-30", "12-31"]
    assert [text[:10] for text in found] == [f"2028-{day}" for day in days] + ["2029-01-31", "2029-02-28", "2029-03-31"]
    assert {text[11:] for text in found} == {"09:30:07.250"}


BEGINS = st.datetimes(datetime(1990, 1, 1), datetime(2040, 1, 1))


@pytest.mark.feature("MQ09")
@given(months=st.integers(1, 40), start=BEGINS, days=st.integers(0, 10_000), zone=st.sampled_from(ZONES))
def test_the_next_monthly_tick_is_the_first_of_all_that_follow(months: int, start: datetime, days: int, zone: str) -> None:
    known = calendar(Timing(months=months, zone=zone))
    anchor_ms = int(start.replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    after_ms, walk_ms, passed = anchor_ms + days * DAY_MS, anchor_ms, -1
    while walk_ms <= after_ms:
        before_ms, walk_ms, passed = walk_ms, known.after(walk_ms, anchor_ms), passed + 1
        assert walk_ms > before_ms
    assert known.after(after_ms, anchor_ms) == walk_ms
    assert (known.count(anchor_ms, after_ms, anchor_ms), known.count(after_ms, walk_ms, anchor_ms)) == (passed, 1)


def test_a_monthly_time_of_day_in_a_gap_ticks_right_after_it_and_in_a_fold_the_first_time() -> None:
    zone = "Europe/Berlin"
    known, anchor_ms = calendar(Timing(months=1, zone=zone)), ms("2026-02-28 02:30", zone)
    assert known.after(ms("2026-03-01", zone), ms("2026-01-29 02:30", zone)) == ms("2026-03-29 03:00", zone)
    assert known.after(anchor_ms, anchor_ms) == ms("2026-03-28 02:30", zone)
    assert known.after(ms("2026-10-01", zone), ms("2026-01-25 02:30", zone)) == ms("2026-10-25 02:30", zone, fold=0)


def test_nothing_ticks_before_the_start() -> None:
    start_ms = ms("2026-06-01 10:00")
    some: Any = (({"cron": "0 * * * *"}, 0), ({"cron": "30 * * * *"}, 30), ({"every_ms": 1000}, 0), ({"months": 1}, 0))
    for timing, minutes in some:
        assert calendar(Timing(**timing, start_ms=start_ms)).after(ms("2026-01-01"), start_ms) == start_ms + minutes * MINUTE_MS


@given(st.sampled_from([100, 1000, 60_000]), st.integers(0, 500), st.integers(1, 100), st.integers(0, 99))
def test_of_many_due_ticks_the_last_are_told(every_ms: int, due: int, most: int, late_ms: int) -> None:
    known, first_ms = calendar(Timing(every_ms=every_ms)), 1_000_000
    now_ms = first_ms + due * every_ms + late_ms
    ticks = list(range(first_ms, now_ms + 1, every_ms))
    assert known.between(first_ms, now_ms, first_ms, most) == (ticks[-most:], len(ticks))


SECONDLY = st.sampled_from([*EXPRESSIONS, "*/7 30 1-3 * * *"])
FIRST, LENGTH = st.integers(-2 * 86_400, 2 * 86_400), st.integers(0, 3 * 86_400)


@given(zone_and_day=st.sampled_from(TRANSITIONS), expression=SECONDLY, first=FIRST, length=LENGTH)
def test_the_count_of_ticks_is_that_of_a_walk(zone_and_day: tuple[str, str], expression: str, first: int, length: int) -> None:
    zone, day = zone_and_day
    timing, first_ms = Timing(cron=expression, zone=zone), ms(day) + first * 1000
    walk = walked(timing, first_ms + 1, first_ms + length * 1000)
    assert calendar(timing).count(first_ms, first_ms + length * 1000, 0) == len(walk)


def test_ten_years_without_schedulers_are_looked_at_in_no_time() -> None:
    """Every second of ten years would be 315 million ticks."""
    known = calendar(Timing(cron="* * * * * *", zone="Europe/Berlin"))
    first_ms, now_ms = ms("2020-01-01"), ms("2030-01-01")
    ticks, total = known.between(first_ms, now_ms, 0, 100)
    assert (ticks, total) == ([now_ms - 1000 * back for back in range(99, -1, -1)], (now_ms - first_ms) // 1000 + 1)


def test_utc_needs_no_zone_files() -> None:
    assert calendar(Timing(cron="* * * * *")).zone is UTC
