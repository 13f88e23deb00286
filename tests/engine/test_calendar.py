"""When schedules tick (rule 24): against an oracle that walks through every minute and asks the clock on the wall."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.calendar import Unreadable, calendar
from engine.ops.schedules import Timing
from tests.engine.helpers.producing import refused

MINUTE_MS = 60_000
DAY_MS = 86_400_000
#: A zone, a day near one of its transitions: forward and back, also by half an hour, and at midnight.
TRANSITIONS = [
    ("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25"), ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"), ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"), ("America/Sao_Paulo", "2018-11-04"),
    ("America/Sao_Paulo", "2018-02-18"), ("Africa/Casablanca", "2026-02-15"), ("Pacific/Apia", "2011-12-30"),
    ("Asia/Kathmandu", "1986-01-01"), ("UTC", "2026-03-29"),
]  # fmt: skip
EXPRESSIONS = [
    "0 2 * * *", "30 2 * * *", "15 * * * *", "*/20 * * * *", "0 0 * * *", "*/10 1-3 * * *",
    "45 1,2 * * sat,sun", "0 */2 * * *", "0 3 29-31 * *", "0 0 1 * mon",
]  # fmt: skip


def ms(text: str, zone: str = "UTC", fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


# -- the oracle: it knows no croniter, no offsets and no transitions


def numbers(field: str, least: int, most: int) -> set[int]:
    names = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            low, high = least, most
        else:
            low = names.get(first, 0) if first in names else int(first)
            high = int(last) if last else (most if step else low)
        found |= set(range(low, high + 1, int(step or 1)))
    return found


@cache
def minutes_of(zone: str, day: int) -> list[datetime]:
    """The clock on the wall in each minute of a day since 1970."""
    known, times_s = ZoneInfo(zone), range(day * 86_400, (day + 1) * 86_400, 60)
    return [datetime.fromtimestamp(at_s, known).replace(tzinfo=None) for at_s in times_s]


def on_the_wall(zone: str, at_ms: int) -> datetime:
    return minutes_of(zone, at_ms // DAY_MS)[at_ms % DAY_MS // MINUTE_MS]


@cache
def fields(expression: str) -> list[set[int]]:
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
    return [numbers(field, *bound) for field, bound in zip(expression.split(), bounds, strict=True)]


def names(expression: str, at: datetime) -> bool:
    """Whether the expression names this time of day."""
    minutes, hours, days, months, weekdays = fields(expression)
    if at.minute not in minutes or at.hour not in hours or at.month not in months:
        return False
    _, _, day, _, weekday = expression.split()
    by_day, by_weekday = at.day in days, at.isoweekday() % 7 in weekdays
    return (by_day and by_weekday) if day[0] == "*" or weekday[0] == "*" else (by_day or by_weekday)


def oracle(expression: str, zone: str, first_ms: int, last_ms: int) -> Iterator[int]:
    """Every tick in [first, last]: minute by minute, looking at the clock on the wall and remembering its latest time."""
    every_hour = numbers(expression.split()[1], 0, 23) == set(range(24))
    latest = on_the_wall(zone, first_ms - 3 * DAY_MS)
    for at_ms in range(first_ms - 3 * DAY_MS, last_ms + 1, MINUTE_MS):
        now = on_the_wall(zone, at_ms)
        shown = [now] if every_hour or now > latest else []
        if not every_hour:
            # What the clock jumped over is done now, once.
            skipped = latest + timedelta(minutes=1)
            while skipped < now:
                shown.append(skipped)
                skipped += timedelta(minutes=1)
            latest = max(latest, now)
        if at_ms >= first_ms and any(names(expression, one) for one in shown):
            yield at_ms


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
    assert walked(Timing(cron=expression, zone=zone), first_ms, last_ms) == list(oracle(expression, zone, first_ms, last_ms))


@given(
    near=st.sampled_from(TRANSITIONS),
    minute=st.sampled_from(["0", "30", "59", "*/7", "5,35", "*"]),
    hour=st.sampled_from(["*", "0", "1", "2", "3", "1-3", "*/5", "0-23", "23"]),
    day=st.sampled_from(["*", "1", "28-31", "*/2"]),
    weekday=st.sampled_from(["*", "0", "mon", "5-6"]),
    after=st.integers(0, 3 * 24 * 60),
)
def test_the_next_tick_is_the_oracles(near: tuple[str, str], minute: str, hour: str, day: str, weekday: str, after: int) -> None:
    zone, date = near
    expression, after_ms = f"{minute} {hour} {day} * {weekday}", ms(date) - DAY_MS + after * MINUTE_MS
    horizon_ms = after_ms + 2 * DAY_MS
    expected = next(oracle(expression, zone, after_ms + MINUTE_MS, horizon_ms), None)
    found = calendar(Timing(cron=expression, zone=zone)).after(after_ms, 0)
    assert found == expected if expected is not None else found > horizon_ms


@pytest.mark.feature("BN17")
def test_the_declared_rule_in_words() -> None:
    berlin = "Europe/Berlin"
    daily = calendar(Timing(cron="30 2 * * *", zone=berlin))
    # 02:30 is skipped on 29 March: 03:00 summer time is the first instant after the gap. On 25 October it comes twice.
    assert daily.after(ms("2026-03-28 12:00", berlin), 0) == ms("2026-03-29 03:00", berlin)
    assert daily.after(ms("2026-03-29 03:00", berlin), 0) == ms("2026-03-30 02:30", berlin)
    assert daily.after(ms("2026-10-24 12:00", berlin), 0) == ms("2026-10-25 02:30", berlin)
    assert daily.after(ms("2026-10-25 02:30", berlin), 0) == ms("2026-10-26 02:30", berlin)
    hourly = calendar(Timing(cron="30 * * * *", zone=berlin))
    assert hourly.after(ms("2026-03-29 01:30", berlin), 0) == ms("2026-03-29 03:30", berlin)
    assert hourly.after(ms("2026-10-25 02:30", berlin), 0) == ms("2026-10-25 02:30", berlin, fold=1)
    # Midnight does not exist on that day.
    assert calendar(Timing(cron="0 0 * * *", zone="America/Sao_Paulo")).after(
        ms("2018-11-03 12:00", "America/Sao_Paulo"), 0
    ) == ms("2018-11-04 01:00", "America/Sao_Paulo")


@pytest.mark.feature("BN16")
def test_of_six_fields_the_first_is_the_second() -> None:
    known = calendar(Timing(cron="*/20 30 4 * * *"))
    ticks = [known.after(ms("2026-01-01"), 0)]
    for _ in range(3):
        ticks.append(known.after(ticks[-1], 0))
    assert ticks == [ms(f"2026-01-01 04:30:{second}") for second in ("00", "20", "40")] + [ms("2026-01-02 04:30")]


@pytest.mark.parametrize(("expression", "expected"), [
    ("0 0 L * *", "2026-01-31"), ("@weekly", "2026-01-04"), ("0 0 29 feb *", "2028-02-29"),
    ("0 0 * * MON#2", "2026-01-12"), ("0 0 ? * fri", "2026-01-02"),
])  # fmt: skip
def test_what_else_an_expression_may_say(expression: str, expected: str) -> None:
    assert calendar(Timing(cron=expression)).after(ms("2026-01-01"), 0) == ms(expected)


@pytest.mark.parametrize("timing", [
    Timing(cron="* * * *"), Timing(cron="jan * * * *"), Timing(cron="* * * * *", zone="Mars/Olympus"),
    Timing(cron="* * * * *", zone="../etc/passwd"), Timing(cron="* * * * *", every_ms=1000), Timing(),
], ids=str)  # fmt: skip
def test_a_timing_that_cannot_be_read_says_so(timing: Timing) -> None:
    refused(Unreadable, "", calendar, timing)


def test_a_time_beyond_the_calendar_has_no_ticks() -> None:
    refused(Unreadable, "no tick within the calendar", calendar(Timing(months=1)).count, 0, 10**18, 0)


@pytest.mark.feature("MQ08")
@given(every_ms=st.integers(100, 10**10), anchor_ms=st.integers(0, 2**42), after_ms=st.integers(0, 2**42))
def test_an_interval_counts_from_its_anchor_and_does_not_drift(every_ms: int, anchor_ms: int, after_ms: int) -> None:
    assert (tick_ms := calendar(Timing(every_ms=every_ms)).after(after_ms, anchor_ms)) > after_ms
    assert (tick_ms - anchor_ms) % every_ms == 0 and tick_ms - every_ms <= max(after_ms, anchor_ms - every_ms)


@pytest.mark.feature("MQ09")
def test_months_keep_the_day_of_the_anchor_where_the_month_has_it() -> None:
    zone = "Europe/Berlin"
    known = calendar(Timing(months=1, zone=zone))
    anchor_ms = at_ms = ms("2028-01-31 09:30:07.250", zone)
    found: list[str] = []
    for _ in range(14):
        at_ms = known.after(at_ms, anchor_ms)
        found.append(datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).isoformat(" ", "milliseconds")[:23])
    days = ["02-29", "03-31", "04-30", "05-31", "06-30", "07-31", "08-31", "09-30", "10-31", "11-30", "12-31"]
    assert [text[:10] for text in found] == [f"2028-{day}" for day in days] + ["2029-01-31", "2029-02-28", "2029-03-31"]
    assert {text[11:] for text in found} == {"09:30:07.250"}


@pytest.mark.feature("MQ09")
@given(
    months=st.integers(1, 40),
    start=st.datetimes(datetime(1990, 1, 1), datetime(2040, 1, 1)),
    days=st.integers(0, 10_000),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe"]),
)
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
    assert calendar(Timing(months=1, zone=zone)).after(ms("2026-03-01", zone), ms("2026-01-29 02:30", zone)) == ms(
        "2026-03-29 03:00", zone
    )
    assert known.after(anchor_ms, anchor_ms) == ms("2026-03-28 02:30", zone)
    assert known.after(ms("2026-10-01", zone), ms("2026-01-25 02:30", zone)) == ms("2026-10-25 02:30", zone, fold=0)


def test_nothing_ticks_before_the_start() -> None:
    start_ms = ms("2026-06-01 10:00")
    for timing, first in (
        (Timing(cron="0 * * * *", start_ms=start_ms), start_ms),
        (Timing(cron="30 * * * *", start_ms=start_ms), start_ms + 30 * MINUTE_MS),
        (Timing(every_ms=1000, start_ms=start_ms), start_ms),
        (Timing(months=1, start_ms=start_ms), start_ms),
    ):
        assert calendar(timing).after(ms("2026-01-01"), start_ms) == first


@given(
    every_ms=st.sampled_from([100, 1000, 60_000]), due=st.integers(0, 500), most=st.integers(1, 100), late_ms=st.integers(0, 99)
)
def test_of_many_due_ticks_the_last_are_told(every_ms: int, due: int, most: int, late_ms: int) -> None:
    known, first_ms = calendar(Timing(every_ms=every_ms)), 1_000_000
    now_ms = first_ms + due * every_ms + late_ms
    ticks = list(range(first_ms, now_ms + 1, every_ms))
    assert known.between(first_ms, now_ms, first_ms, most) == (ticks[-most:], len(ticks))


@given(
    zone_and_day=st.sampled_from(TRANSITIONS),
    expression=st.sampled_from([*EXPRESSIONS, "*/7 30 1-3 * * *"]),
    first=st.integers(-2 * 86_400, 2 * 86_400),
    length=st.integers(0, 3 * 86_400),
)
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


@pytest.mark.parametrize("timing", [Timing(every_ms=-1000), Timing(months=-1)], ids=str)
def test_an_interval_below_zero_in_what_is_stored_is_refused(timing: Timing) -> None:
    refused(Unreadable, "above 0", calendar, timing)


def test_utc_needs_no_zone_files() -> None:
    assert calendar(Timing(cron="* * * * *")).zone is UTC
