"""How a fetch waits, by a clock of the test: when it looks, how long it rests, and when it ends."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from engine.channel.steps import Rest, waiting

MS = 1_000_000


class Time:
    """A monotonic clock that goes when it is told to."""

    def __init__(self) -> None:
        self.ns = 5_000 * MS

    def now(self) -> int:
        return self.ns


def rests(wait_ms: int, ttl_s: int, answers: list[tuple[int, bool]], looks: list[str]) -> tuple[list[Rest], int]:
    """Rest as long as is asked for, or (answer) so many ms and then be rung; what was asked, and how long all took."""
    time = Time()
    asked: list[Rest] = []
    told = iter(looks)

    def look(waited_ms: int) -> Generator[Any, Any, tuple[str, bool]]:
        assert waited_ms == (time.ns - start) // MS, "a look is told how long it was waited"
        word = next(told, "")
        return word, word != ""
        yield

    start, steps = time.ns, waiting(look, wait_ms, ttl_s, time.now)
    try:
        request = next(steps)
        while True:
            assert isinstance(request, Rest)
            asked.append(request)
            rested_ms, goes_on = answers.pop(0) if answers else (request.most_ms, True)
            time.ns += rested_ms * MS
            request = steps.send(goes_on)
    except StopIteration as end:
        assert end.value == (next(reversed(looks), "") if looks else "")
    return asked, (time.ns - start) // MS


@pytest.mark.feature("DS12", model="dsps")
def test_it_waits_at_most_thirty_seconds_and_looks_every_ten() -> None:
    for wait_ms in (30_000, 30_001, 3_600_000):
        asked, took_ms = rests(wait_ms, 1_815, [], [])
        assert [rest.most_ms for rest in asked] == [10_000, 10_000, 10_000] and took_ms == 30_000
        assert {rest.deaf_ms for rest in asked} == {1_000}


def test_a_subscriber_that_lives_for_seconds_is_kept_alive_while_it_waits() -> None:
    asked, _ = rests(30_000, 15, [], [])
    assert max(rest.most_ms for rest in asked) == 5_000


def test_without_a_wait_it_looks_once() -> None:
    assert rests(0, 1_815, [], []) == ([], 0)


def test_it_ends_with_the_first_look_that_tells_something() -> None:
    assert rests(20_000, 1_815, [], ["m"]) == ([], 0)
    asked, took_ms = rests(20_000, 1_815, [(7, True), (30, True)], ["", "", "m"])
    assert took_ms == 37 and [rest.most_ms for rest in asked] == [10_000, 10_000]


def test_it_ends_when_the_channel_is_closed() -> None:
    asked, took_ms = rests(20_000, 1_815, [(7, True), (30, False)], [])
    assert took_ms == 37 and len(asked) == 2


def test_rings_for_nothing_do_not_make_it_longer() -> None:
    asked, took_ms = rests(500, 1_815, [(100, True)] * 4, [])
    assert took_ms == 500 and [rest.most_ms for rest in asked] == [500, 400, 300, 200, 100]
    assert [rest.deaf_ms for rest in asked] == [500, 400, 300, 200, 100]


def test_it_does_not_rest_while_there_is_more_to_find() -> None:
    """Foreign publishers left many expired messages, and a look ends before it has found the living ones behind them."""
    told = iter(["searching", "searching", "", "m"])

    def look(_: int) -> Generator[Any, Any, tuple[str, bool]]:
        word = next(told)
        return word, word == "m"
        yield

    steps = waiting(look, 20_000, 1_815, Time().now, has_more=lambda word: word == "searching")
    asked = [next(steps)]
    with pytest.raises(StopIteration) as end:
        while True:
            asked.append(steps.send(True))
    assert end.value.value == "m" and asked == [Rest(0, 0), Rest(0, 0), Rest(10_000, 1_000)]
